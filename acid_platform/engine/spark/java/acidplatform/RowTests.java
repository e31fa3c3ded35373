package acidplatform;

import java.io.Serializable;
import java.nio.LongBuffer;
import java.util.Arrays;

/** What the rows of a snapshot are tested by: its write ids, and the deleted rows of each partition. */
final class RowTests implements Serializable {
  private final long highWatermark;
  /** Write ids up to the high watermark that the snapshot does not see, ascending. */
  private final long[] invalid;
  /** By the ordinal of the partition; null where nothing is deleted. */
  private final DeletedRows[] deleted;

  RowTests(LongBuffer in, int partitions) {
    highWatermark = in.get();
    invalid = array(in, (int) in.get());
    deleted = new DeletedRows[partitions];
    while (in.hasRemaining()) {
      int partition = (int) in.get();
      long writeId = in.get();
      int bucket = (int) in.get();
      boolean bitmap = in.get() != 0;
      long low = in.get();
      if (deleted[partition] == null) {
        deleted[partition] = new DeletedRows();
      }
      deleted[partition].add(writeId, bucket, new RowIds(bitmap, low, array(in, (int) in.get())));
    }
  }

  /** Whether the snapshot sees an event with this currentTransaction. */
  boolean sees(long writeId) {
    return writeId <= highWatermark && (invalid.length == 0 || Arrays.binarySearch(invalid, writeId) < 0);
  }

  /** The deleted rows of a partition; null if there are none. */
  DeletedRows deleted(int partition) {
    return deleted[partition];
  }

  private static long[] array(LongBuffer in, int length) {
    long[] values = new long[length];
    in.get(values);
    return values;
  }
}
