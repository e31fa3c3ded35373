package acidplatform;

import java.io.Serializable;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/** The deleted rows of a partition: row ids by write id and bucket property (P14). */
final class DeletedRows implements Serializable {
  private final Map rowIds = new HashMap();

  void add(long writeId, int bucket, RowIds gone) {
    rowIds.put(group(writeId, bucket), gone);
  }

  /** The deleted row ids of a write id and bucket property; null if there are none. */
  RowIds of(long writeId, int bucket) {
    return (RowIds) rowIds.get(group(writeId, bucket));
  }

  private static Object group(long writeId, int bucket) {
    return Arrays.asList(new Object[] {Long.valueOf(writeId), Integer.valueOf(bucket)});
  }
}
