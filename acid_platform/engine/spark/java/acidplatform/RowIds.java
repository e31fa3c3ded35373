package acidplatform;

import java.io.Serializable;
import java.util.Arrays;

/** A set of row ids, not empty: a bitmap, or an ascending array where that is shorter. */
final class RowIds implements Serializable {
  private final boolean bitmap;
  /** The row id of the bitmap's first bit. */
  private final long low;
  private final long[] values;

  RowIds(boolean bitmap, long low, long[] values) {
    this.bitmap = bitmap;
    this.low = low;
    this.values = values;
  }

  boolean contains(long rowId) {
    if (bitmap) {
      long bit = rowId - low;
      return bit >= 0 && bit < (long) values.length << 6 && (values[(int) (bit >>> 6)] >>> bit & 1L) != 0;
    }
    return rowId >= values[0] && rowId <= values[values.length - 1] && Arrays.binarySearch(values, rowId) >= 0;
  }

  /** Whether the set has none of the row ids first .. first + count - 1; a bitmap answers false also for row ids near them. */
  boolean hasNone(long first, int count) {
    if (bitmap) {
      long from = Math.max(first - low, 0) >> 6;
      long to = Math.min(first + count - 1 - low >> 6, values.length - 1);
      for (long word = from; word <= to; word++) {
        if (values[(int) word] != 0) {
          return false;
        }
      }
      return true;
    }
    int next = firstFrom(first);
    return next == values.length || values[next] >= first + count;
  }

  /** Fills `live` with the i below `count` for which first + i is not in the set; answers how many there are. */
  int without(long first, int count, int[] live) {
    int size = 0;
    if (bitmap) {
      for (int i = 0; i < count; i++) {
        live[size] = i;
        long bit = first + i - low;
        boolean gone = bit >= 0 && bit < (long) values.length << 6 && (values[(int) (bit >>> 6)] >>> bit & 1L) != 0;
        size += gone ? 0 : 1;
      }
      return size;
    }
    int next = firstFrom(first);
    for (int i = 0; i < count; i++) {
      if (next < values.length && values[next] == first + i) {
        next++;
      } else {
        live[size++] = i;
      }
    }
    return size;
  }

  private int firstFrom(long rowId) {
    int place = Arrays.binarySearch(values, rowId);
    return place >= 0 ? place : -place - 1;
  }
}
