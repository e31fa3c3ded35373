package acidplatform;

import org.apache.hadoop.hive.ql.exec.vector.TimestampColumnVector;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;

/** Timestamps as microseconds; only those before 1900 go through Spark's calendars, whose days differ there. */
final class TimestampColumn extends DecodedColumn {
  private static final String FINE_TIME = "[FINE_TIME] ";
  private static final long MILLISECONDS_OF_1900 = -2208988800000L;

  private final TimestampColumnVector values;
  private final ColumnVector bySpark;
  private final String where;

  /** `where`: the file and the column, for an error. */
  TimestampColumn(TimestampColumnVector values, ColumnVector bySpark, String where) {
    super(DataTypes.TimestampType);
    this.where = where;
    this.values = values;
    this.bySpark = bySpark;
  }

  public boolean hasNull() {
    return !values.noNulls;
  }

  public boolean isNullAt(int row) {
    return !values.noNulls && values.isNull[values.isRepeating ? 0 : row];
  }

  public long getLong(int row) {
    int place = values.isRepeating ? 0 : row;
    long milliseconds = values.time[place];
    if (values.nanos[place] % 1000 != 0) {
      throw new RuntimeException(FINE_TIME + where);
    }
    if (milliseconds < MILLISECONDS_OF_1900) {
      return bySpark.getLong(row);
    }
    return milliseconds * 1000 + values.nanos[place] / 1000 % 1000;
  }
}
