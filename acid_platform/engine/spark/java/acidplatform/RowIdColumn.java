package acidplatform;

import org.apache.spark.sql.types.DataTypes;

/** The row ids of a batch of a file in which they run without gaps. */
final class RowIdColumn extends DecodedColumn {
  /** The row id of the batch's first row. */
  long first;

  RowIdColumn() {
    super(DataTypes.LongType);
  }

  public long getLong(int row) {
    return first + row;
  }
}
