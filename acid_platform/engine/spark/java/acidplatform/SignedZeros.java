package acidplatform;

import org.apache.hadoop.hive.ql.exec.vector.ColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.DoubleColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.ListColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.MapColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.StructColumnVector;

/**
 * ORC says of a batch of nothing but 0.0 and -0.0 that it repeats its first value, since the two are equal; it has
 * decoded all of them.
 */
final class SignedZeros {
  private SignedZeros() {}

  /** Has each row of such a batch read its own zero. The file has the column with the type that is read. */
  static void apart(ColumnVector column) {
    if (column instanceof DoubleColumnVector) {
      if (column.isRepeating && column.noNulls && ((DoubleColumnVector) column).vector[0] == 0) {
        column.isRepeating = false;
      }
    } else if (column instanceof StructColumnVector) {
      ColumnVector[] fields = ((StructColumnVector) column).fields;
      for (int i = 0; i < fields.length; i++) {
        apart(fields[i]);
      }
    } else if (column instanceof ListColumnVector) {
      apart(((ListColumnVector) column).child);
    } else if (column instanceof MapColumnVector) {
      apart(((MapColumnVector) column).keys);
      apart(((MapColumnVector) column).values);
    }
  }
}
