package acidplatform;

import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** Some rows of a column: row i is row kept[i] of the column below. */
final class KeptRows extends ColumnVector {
  private final ColumnVector column;
  private final int[] kept;
  private final ColumnVector[] children;

  KeptRows(ColumnVector column, int[] kept, int childCount) {
    super(column.dataType());
    this.column = column;
    this.kept = kept;
    children = new ColumnVector[childCount];
  }

  public void close() {}

  public boolean hasNull() {
    return column.hasNull();
  }

  public int numNulls() {
    return column.numNulls();
  }

  public boolean isNullAt(int row) {
    return column.isNullAt(kept[row]);
  }

  public boolean getBoolean(int row) {
    return column.getBoolean(kept[row]);
  }

  public byte getByte(int row) {
    return column.getByte(kept[row]);
  }

  public short getShort(int row) {
    return column.getShort(kept[row]);
  }

  public int getInt(int row) {
    return column.getInt(kept[row]);
  }

  public long getLong(int row) {
    return column.getLong(kept[row]);
  }

  public float getFloat(int row) {
    return column.getFloat(kept[row]);
  }

  public double getDouble(int row) {
    return column.getDouble(kept[row]);
  }

  public ColumnarArray getArray(int row) {
    return column.getArray(kept[row]);
  }

  public ColumnarMap getMap(int row) {
    return column.getMap(kept[row]);
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    return column.getDecimal(kept[row], precision, scale);
  }

  public UTF8String getUTF8String(int row) {
    return column.getUTF8String(kept[row]);
  }

  public byte[] getBinary(int row) {
    return column.getBinary(kept[row]);
  }

  public ColumnVector getChild(int ordinal) {
    if (children[ordinal] == null) {
      children[ordinal] = of(column.getChild(ordinal), kept);
    }
    return children[ordinal];
  }

  static ColumnVector of(ColumnVector column, int[] kept) {
    int fields = 0;
    if (column.dataType() instanceof org.apache.spark.sql.types.StructType) {
      fields = ((org.apache.spark.sql.types.StructType) column.dataType()).length();
    }
    return new KeptRows(column, kept, fields);
  }
}
