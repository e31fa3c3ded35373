package acidplatform;

import java.io.Serializable;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.util.SerializableConfiguration;
import scala.collection.immutable.Seq;

/** Opens a file, or a split of one, in a task. */
final class OpenFile extends scala.runtime.AbstractFunction1 implements Serializable {
  private final Broadcast tests;
  private final Broadcast conf;
  private final AskedColumns asked;
  private final Seq filters;
  private final boolean batches;
  private final int capacity;

  /** `batches`: of up to `capacity` rows; otherwise rows one by one. */
  OpenFile(Broadcast tests, Broadcast conf, AskedColumns asked, Seq filters, boolean batches, int capacity) {
    this.tests = tests;
    this.conf = conf;
    this.asked = asked;
    this.filters = filters;
    this.batches = batches;
    this.capacity = capacity;
  }

  public Object apply(Object split) {
    PartitionedFile part = (PartitionedFile) split;
    Configuration hadoop = ((SerializableConfiguration) conf.value()).value();
    try {
      AcidFileReader reader =
          new AcidFileReader(part, (RowTests) tests.value(), hadoop, asked, filters, capacity);
      return new AcidBatches(reader, batches ? null : UnsafeProjection.create(asked.all()));
    } catch (Exception error) {
      throw Unchecked.of(error);
    }
  }
}
