package acidplatform;

import java.lang.reflect.Method;
import org.apache.hadoop.hive.ql.exec.vector.ColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.Decimal64ColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.StructColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.TimestampColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatch;
import org.apache.orc.TypeDescription;
import org.apache.orc.impl.SchemaEvolution;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.orc.OrcColumnVector;
import org.apache.spark.sql.execution.vectorized.ColumnVectorUtils;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Spark's view of the batch that ORC has decoded: the flat columns of the rows that are kept. */
final class LiveBatch {
  /** The positions of the kept rows in the decoded batch, ascending; the reader fills it. */
  final int[] live;
  /** The row ids of a file whose keys are not decoded. */
  final RowIdColumn rowIds = new RowIdColumn();

  private final OrcColumnVector[] orcColumns;
  private final ColumnarBatch all;
  private final ColumnarBatch some;
  /** The columns of `some` whose kept rows are moved to the front; null for others. */
  private final ColumnVector[] moved;
  /** The columns that the file has with the type that is read; null for others. */
  private final ColumnVector[] unconverted;

  /**
   * `path` is that of the file, for errors. `row` is the type that `decoded` has for the table's columns, `stored` the file's own. Without `decodesKeys` the
   * parts of keys are those of `file`, and row ids those of `rowIds`.
   */
  LiveBatch(
      AskedColumns asked, String path, AcidFile file, TypeDescription row, TypeDescription stored,
      VectorizedRowBatch decoded, boolean decodesKeys, InternalRow partitionValues, int capacity)
      throws Exception {
    int width = asked.data.length() + asked.partition.length();
    org.apache.spark.sql.vectorized.ColumnVector[] columns = new org.apache.spark.sql.vectorized.ColumnVector[width];
    org.apache.spark.sql.vectorized.ColumnVector[] selected = new org.apache.spark.sql.vectorized.ColumnVector[width];
    live = new int[capacity];
    orcColumns = new OrcColumnVector[width];
    moved = new ColumnVector[width];
    unconverted = new ColumnVector[width];
    boolean raw = file.is(AcidFile.RAW);
    ColumnVector[] fields = raw ? decoded.cols : ((StructColumnVector) decoded.cols[AcidFileReader.ROW]).fields;
    int field = 0;
    for (int i = 0; i < asked.data.length(); i++) {
      StructField column = asked.data.fields()[i];
      int kind = asked.kind(i);
      if (kind == AskedColumns.STORED) {
        TypeDescription read = (TypeDescription) row.getChildren().get(field);
        TypeDescription own = storedType(column.name(), stored);
        columns[i] = storedColumn(i, path, column, read, own, fields, field);
        if (read.equals(own)) {
          unconverted[i] = fields[field];
        }
        if (MovedRows.canMove(fields[field])) {
          moved[i] = fields[field];
        }
        field++;
      } else if (kind == AskedColumns.ENTITY) {
        columns[i] = constant(capacity, column.dataType(), file.partition);
      } else if (decodesKeys) {
        columns[i] = orcColumns[i] = orcColumn(column.dataType(), decoded.cols[AcidFileReader.WRITE_ID + kind]);
      } else if (kind == AskedColumns.ROW_ID) {
        columns[i] = rowIds;
      } else {
        long value = kind == AskedColumns.BUCKET ? file.bucket : file.writeId;
        columns[i] = constant(capacity, column.dataType(), value);
      }
      selected[i] = moved[i] == null ? new KeptRows(columns[i], live) : columns[i];
    }
    for (int i = 0; i < asked.partition.length(); i++) {
      ConstantColumnVector value = new ConstantColumnVector(capacity, asked.partition.fields()[i].dataType());
      ColumnVectorUtils.populate(value, partitionValues, i);
      columns[asked.data.length() + i] = value;
      selected[asked.data.length() + i] = value;
    }
    all = new ColumnarBatch(columns);
    some = new ColumnarBatch(selected);
  }

  /** The first `size` positions in `live` of a decoded batch of `count` rows, or all rows if that is as many. */
  ColumnarBatch of(int count, int size) {
    ColumnarBatch batch = size == count ? all : some;
    for (int i = 0; i < moved.length; i++) {
      if (unconverted[i] != null) {
        SignedZeros.apart(unconverted[i]);
      }
      if (moved[i] != null && size < count) {
        MovedRows.move(moved[i], live, size);
      }
      if (orcColumns[i] != null) {
        orcColumns[i].setBatchSize(moved[i] == null ? count : size);
      }
    }
    batch.setNumRows(size);
    return batch;
  }

  /** The view of a column of the table, for which `fields[field]` may become a vector of another class. */
  private org.apache.spark.sql.vectorized.ColumnVector storedColumn(
      int place, String path, StructField column, TypeDescription read, TypeDescription stored, ColumnVector[] fields,
      int field)
      throws Exception {
    DataType type = column.dataType();
    if (isShortDecimal(read, stored)) {
      Decimal64ColumnVector values =
          new Decimal64ColumnVector(fields[field].isNull.length, read.getPrecision(), read.getScale());
      fields[field] = values;
      return new DecimalColumn(type, values);
    }
    OrcColumnVector view = orcColumn(type, fields[field]);
    orcColumns[place] = view;
    if (type.equals(DataTypes.TimestampType) && fields[field] instanceof TimestampColumnVector) {
      return new TimestampColumn((TimestampColumnVector) fields[field], view, path + ", column " + column.name());
    }
    return view;
  }

  /** The type that the file has for a column of the table; null if it lacks the column. */
  private static TypeDescription storedType(String name, TypeDescription stored) {
    for (int i = 0; i < stored.getChildren().size(); i++) {
      if (name.equalsIgnoreCase((String) stored.getFieldNames().get(i))) {
        return (TypeDescription) stored.getChildren().get(i);
      }
    }
    return null;
  }

  /** Whether the file has the column with the type that is read, a decimal of up to 18 digits. */
  private static boolean isShortDecimal(TypeDescription read, TypeDescription stored) {
    return read.getCategory() == TypeDescription.Category.DECIMAL
        && read.getPrecision() <= TypeDescription.MAX_DECIMAL64_PRECISION
        && stored != null
        && stored.getCategory() == TypeDescription.Category.DECIMAL
        && stored.getPrecision() == read.getPrecision()
        && stored.getScale() == read.getScale();
  }

  private static ConstantColumnVector constant(int capacity, DataType type, long value) {
    ConstantColumnVector column = new ConstantColumnVector(capacity, type);
    if (type.equals(DataTypes.LongType)) {
      column.setLong(value);
    } else {
      column.setInt((int) value);
    }
    return column;
  }

  /** Spark's own view of a column that ORC decoded; the class that makes it is private to its package. */
  private static OrcColumnVector orcColumn(DataType type, ColumnVector column) throws Exception {
    Method make =
        Class.forName(
                "org.apache.spark.sql.execution.datasources.orc.OrcColumnVectorUtils",
                true,
                OrcColumnVector.class.getClassLoader())
            .getDeclaredMethod("toOrcColumnVector", new Class[] {DataType.class, ColumnVector.class});
    make.setAccessible(true);
    return (OrcColumnVector) make.invoke(null, new Object[] {type, column});
  }
}
