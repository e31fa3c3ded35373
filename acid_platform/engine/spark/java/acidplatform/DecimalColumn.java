package acidplatform;

import org.apache.hadoop.hive.ql.exec.vector.Decimal64ColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;

/** Decimals of up to 18 digits, which ORC decodes to 64-bit integers; Spark's own view of them makes objects. */
final class DecimalColumn extends DecodedColumn {
  private final Decimal64ColumnVector values;

  DecimalColumn(DataType type, Decimal64ColumnVector values) {
    super(type);
    this.values = values;
  }

  public boolean hasNull() {
    return !values.noNulls;
  }

  public boolean isNullAt(int row) {
    return !values.noNulls && values.isNull[values.isRepeating ? 0 : row];
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    return isNullAt(row) ? null : Decimal.createUnsafe(values.vector[values.isRepeating ? 0 : row], precision, scale);
  }
}
