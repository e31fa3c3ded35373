package acidplatform;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column of one type: a subclass has the getter of that type, and the others fail. */
abstract class DecodedColumn extends ColumnVector {
  DecodedColumn(DataType type) {
    super(type);
  }

  public void close() {}

  public boolean hasNull() {
    return false;
  }

  public int numNulls() {
    return 0;
  }

  public boolean isNullAt(int row) {
    return false;
  }

  public boolean getBoolean(int row) {
    throw new UnsupportedOperationException();
  }

  public byte getByte(int row) {
    throw new UnsupportedOperationException();
  }

  public short getShort(int row) {
    throw new UnsupportedOperationException();
  }

  public int getInt(int row) {
    throw new UnsupportedOperationException();
  }

  public long getLong(int row) {
    throw new UnsupportedOperationException();
  }

  public float getFloat(int row) {
    throw new UnsupportedOperationException();
  }

  public double getDouble(int row) {
    throw new UnsupportedOperationException();
  }

  public ColumnarArray getArray(int row) {
    throw new UnsupportedOperationException();
  }

  public ColumnarMap getMap(int row) {
    throw new UnsupportedOperationException();
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    throw new UnsupportedOperationException();
  }

  public UTF8String getUTF8String(int row) {
    throw new UnsupportedOperationException();
  }

  public byte[] getBinary(int row) {
    throw new UnsupportedOperationException();
  }

  public ColumnVector getChild(int ordinal) {
    throw new UnsupportedOperationException();
  }
}
