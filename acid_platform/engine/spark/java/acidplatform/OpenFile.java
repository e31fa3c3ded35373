package acidplatform;

import java.io.Serializable;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.collection.immutable.Seq;

/** Opens a file, or a split of one, in a task. */
final class OpenFile extends scala.runtime.AbstractFunction1 implements Serializable {
  private final Broadcast tests;
  private final Broadcast conf;
  private final StructType data;
  private final StructType partition;
  private final String[] virtual;
  private final Seq filters;
  private final boolean batches;
  private final int capacity;

  /**
   * `data` and `partition`: the columns of the rows, in this order. `virtual`: the names of those in `data` that no
   * file has. `batches`: of up to `capacity` rows; otherwise rows one by one.
   */
  OpenFile(
      Broadcast tests, Broadcast conf, StructType data, StructType partition, String[] virtual, Seq filters,
      boolean batches, int capacity) {
    this.tests = tests;
    this.conf = conf;
    this.data = data;
    this.partition = partition;
    this.virtual = virtual;
    this.filters = filters;
    this.batches = batches;
    this.capacity = capacity;
  }

  public Object apply(Object split) {
    PartitionedFile part = (PartitionedFile) split;
    Configuration hadoop = ((SerializableConfiguration) conf.value()).value();
    try {
      AcidFileReader reader =
          new AcidFileReader(part, (RowTests) tests.value(), hadoop, data, partition, virtual, filters, capacity);
      return new AcidBatches(reader, batches ? null : UnsafeProjection.create(columns()));
    } catch (Exception error) {
      throw Unchecked.of(error);
    }
  }

  private StructType columns() {
    StructType columns = data;
    for (int i = 0; i < partition.length(); i++) {
      columns = columns.add(partition.fields()[i]);
    }
    return columns;
  }
}
