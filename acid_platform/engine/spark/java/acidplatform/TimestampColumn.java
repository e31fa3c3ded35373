package acidplatform;

import org.apache.hadoop.hive.ql.exec.vector.TimestampColumnVector;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;

/** Timestamps as microseconds; only those before 1900 go through Spark's calendars, whose days differ there. */
final class TimestampColumn extends DecodedColumn {
  private static final long MILLISECONDS_OF_1900 = -2208988800000L;

  private final TimestampColumnVector values;
  private final ColumnVector bySpark;

  TimestampColumn(TimestampColumnVector values, ColumnVector bySpark) {
    super(DataTypes.TimestampType);
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
    if (milliseconds < MILLISECONDS_OF_1900) {
      return bySpark.getLong(row);
    }
    return milliseconds * 1000 + values.nanos[place] / 1000 % 1000;
  }
}
