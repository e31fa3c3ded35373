package acidplatform;

import org.apache.hadoop.hive.ql.exec.vector.BytesColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.ColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.DoubleColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.LongColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.TimestampColumnVector;

/** Moves the rows that are kept to the front of a decoded column, so that Spark reads it as it is. */
final class MovedRows {
  private MovedRows() {}

  /** Whether the values of a column can be moved: those that are objects, or nested, can't. */
  static boolean canMove(ColumnVector column) {
    return column instanceof LongColumnVector
        || column instanceof DoubleColumnVector
        || column instanceof BytesColumnVector
        || column instanceof TimestampColumnVector;
  }

  /** Row i becomes row live[i], which ascend, for each i below `count`. */
  static void move(ColumnVector column, int[] live, int count) {
    if (column.isRepeating) {
      return;
    }
    if (!column.noNulls) {
      boolean[] isNull = column.isNull;
      for (int i = 0; i < count; i++) {
        isNull[i] = isNull[live[i]];
      }
    }
    if (column instanceof LongColumnVector) {
      move(((LongColumnVector) column).vector, live, count);
    } else if (column instanceof DoubleColumnVector) {
      double[] values = ((DoubleColumnVector) column).vector;
      for (int i = 0; i < count; i++) {
        values[i] = values[live[i]];
      }
    } else if (column instanceof BytesColumnVector) {
      BytesColumnVector texts = (BytesColumnVector) column;
      byte[][] values = texts.vector;
      for (int i = 0; i < count; i++) {
        values[i] = values[live[i]];
      }
      move(texts.start, live, count);
      move(texts.length, live, count);
    } else {
      move(((TimestampColumnVector) column).time, live, count);
      move(((TimestampColumnVector) column).nanos, live, count);
    }
  }

  private static void move(long[] values, int[] live, int count) {
    for (int i = 0; i < count; i++) {
      values[i] = values[live[i]];
    }
  }

  private static void move(int[] values, int[] live, int count) {
    for (int i = 0; i < count; i++) {
      values[i] = values[live[i]];
    }
  }
}
