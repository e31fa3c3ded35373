package acidplatform;

import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** Some rows of a column: row i is row live[i] of the column below. */
final class KeptRows extends ColumnVector {
  private final ColumnVector column;
  private final int[] live;
  private final ColumnVector[] children;

  KeptRows(ColumnVector column, int[] live) {
    super(column.dataType());
    this.column = column;
    this.live = live;
    boolean struct = column.dataType() instanceof StructType;
    children = new ColumnVector[struct ? ((StructType) column.dataType()).length() : 0];
  }

  public void close() {}

  public boolean hasNull() {
    return column.hasNull();
  }

  public int numNulls() {
    return column.numNulls();
  }

  public boolean isNullAt(int row) {
    return column.isNullAt(live[row]);
  }

  public boolean getBoolean(int row) {
    return column.getBoolean(live[row]);
  }

  public byte getByte(int row) {
    return column.getByte(live[row]);
  }

  public short getShort(int row) {
    return column.getShort(live[row]);
  }

  public int getInt(int row) {
    return column.getInt(live[row]);
  }

  public long getLong(int row) {
    return column.getLong(live[row]);
  }

  public float getFloat(int row) {
    return column.getFloat(live[row]);
  }

  public double getDouble(int row) {
    return column.getDouble(live[row]);
  }

  public ColumnarArray getArray(int row) {
    return column.getArray(live[row]);
  }

  public ColumnarMap getMap(int row) {
    return column.getMap(live[row]);
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    return column.getDecimal(live[row], precision, scale);
  }

  public UTF8String getUTF8String(int row) {
    return column.getUTF8String(live[row]);
  }

  public byte[] getBinary(int row) {
    return column.getBinary(live[row]);
  }

  public ColumnVector getChild(int ordinal) {
    if (children[ordinal] == null) {
      children[ordinal] = new KeptRows(column.getChild(ordinal), live);
    }
    return children[ordinal];
  }
}
