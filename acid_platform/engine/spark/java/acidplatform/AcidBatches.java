package acidplatform;

import java.io.IOException;
import java.util.Iterator;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.util.TaskCompletionListener;

/** What Spark iterates over: the batches of a file, or their rows one by one where it wants no batches. */
final class AcidBatches extends scala.collection.AbstractIterator implements TaskCompletionListener {
  private final AcidFileReader reader;
  private final UnsafeProjection projection;
  private Iterator rows;
  private Object next;
  private boolean ended;
  private boolean closed;

  /** `projection` null: batches. */
  AcidBatches(AcidFileReader reader, UnsafeProjection projection) {
    this.reader = reader;
    this.projection = projection;
    if (TaskContext.get() != null) {
      TaskContext.get().addTaskCompletionListener((TaskCompletionListener) this);
    }
  }

  public boolean hasNext() {
    if (next == null && !ended) {
      try {
        advance();
      } catch (IOException error) {
        throw Unchecked.of(error);
      }
    }
    return next != null;
  }

  public Object next() {
    if (!hasNext()) {
      throw new java.util.NoSuchElementException();
    }
    Object result = next;
    next = null;
    return result;
  }

  public void onTaskCompletion(TaskContext context) {
    close();
  }

  private void advance() throws IOException {
    while (true) {
      if (rows != null && rows.hasNext()) {
        next = projection.apply((InternalRow) rows.next());
        return;
      }
      ColumnarBatch batch = reader.next();
      if (batch == null) {
        ended = true;
        close();
        return;
      }
      if (projection == null) {
        next = batch;
        return;
      }
      rows = batch.rowIterator();
    }
  }

  private void close() {
    if (closed) {
      return;
    }
    closed = true;
    try {
      reader.close();
    } catch (IOException error) {
      throw Unchecked.of(error);
    }
  }
}
