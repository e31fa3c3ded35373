package acidplatform;

import java.io.IOException;
import java.lang.reflect.Method;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hive.ql.exec.vector.ColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.Decimal64ColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.LongColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.StructColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.TimestampColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatch;
import org.apache.hadoop.hive.ql.io.sarg.SearchArgument;
import org.apache.orc.OrcFile;
import org.apache.orc.Reader;
import org.apache.orc.RecordReader;
import org.apache.orc.TypeDescription;
import org.apache.orc.impl.SchemaEvolution;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.orc.OrcColumnVector;
import org.apache.spark.sql.execution.datasources.orc.OrcFilters;
import org.apache.spark.sql.execution.datasources.orc.OrcUtils;
import org.apache.spark.sql.execution.vectorized.ColumnVectorUtils;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * The live rows of a file of an ACID table, or of a split of one, as batches of flat columns.
 *
 * The columns of `row` are handed on as they were decoded. The ACID columns are decoded only where rows are tested by
 * them and the file's recorded statistics don't tell them. Deleted rows, and rows that the snapshot does not see, are
 * left out of each batch by a list of the positions of the others.
 */
final class AcidFileReader {
  private static final String NO_INSERT = "[NO_INSERT] ";
  private static final int OPERATION = 0;
  private static final int WRITE_ID = 1;
  private static final int BUCKET = 2;
  private static final int ROW_ID = 3;
  private static final int CURRENT = 4;
  private static final int ROW = 5;
  /** The place of the partition's ordinal in `virtual`, behind the three parts of a key. */
  private static final int ENTITY = 3;

  private final String path;
  private final RowTests tests;
  private final AcidFile file;
  private final DeletedRows deleted;
  private final boolean decodesKeys;
  private final RecordReader records;
  private final VectorizedRowBatch decoded;
  private final OrcColumnVector[] orcColumns;
  private final RowIdColumn rowIds = new RowIdColumn();
  private final ColumnarBatch all;
  private final ColumnarBatch some;
  /** The columns of `some` whose kept rows are moved to the front; null for others. */
  private final ColumnVector[] moved;
  private final int[] kept;

  AcidFileReader(
      PartitionedFile part, RowTests tests, Configuration conf, StructType data, StructType partition,
      String[] virtual, Seq filters, int capacity)
      throws Exception {
    this.tests = tests;
    file = (AcidFile) part.otherConstantMetadataColumnValues().apply(SnapshotFiles.FACTS);
    path = part.toPath().toUri().toString();
    int[] place = new int[data.length()]; // in `virtual`, or -1 - the place in `stored`
    StructType stored = new StructType();
    boolean keysAsked = false;
    for (int i = 0; i < place.length; i++) {
      place[i] = Arrays.asList(virtual).indexOf(data.fields()[i].name());
      keysAsked = keysAsked || place[i] >= 0 && place[i] != ENTITY;
      if (place[i] < 0) {
        place[i] = -1 - stored.length();
        stored = stored.add(data.fields()[i]);
      }
    }
    TypeDescription row = TypeDescription.fromString(OrcUtils.getOrcSchemaString(stored));
    boolean raw = file.is(AcidFile.RAW);
    if (!raw && SchemaEvolution.checkAcidSchema(row)) { // a table whose own columns have the six names
      row.addField("__no_field", TypeDescription.createByte());
    }
    FileSystem system = part.toPath().getFileSystem(conf);
    Reader reader =
        OrcFile.createReader(part.toPath(), OrcFile.readerOptions(conf).maxLength(file.size).filesystem(system));
    boolean opened = false;
    try {
      if (SchemaEvolution.checkAcidSchema(reader.getSchema()) == raw) {
        throw new RuntimeException(raw ? "it has ACID columns, and had none before" : NO_INSERT + path + ": -1");
      }
      // Writers make the key index only if the keys of a file ascend.
      boolean byPosition = file.is(AcidFile.CONTIGUOUS) && reader.hasMetadataValue("hive.acid.key.index");
      deleted = file.is(AcidFile.TEST_DELETES) ? tests.deleted(file.partition) : null;
      boolean needsKeys = (keysAsked || deleted != null) && !byPosition;
      boolean tested = !file.is(AcidFile.PROVEN) || file.is(AcidFile.TEST_ROWS) || file.above >= 0;
      decodesKeys = !raw && (needsKeys || tested);
      Reader.Options options =
          reader
              .options()
              .schema(row)
              .includeAcidColumns(decodesKeys)
              .isSchemaEvolutionCaseAware(false)
              .forcePositionalEvolution(false)
              .range(part.start(), part.length());
      Option argument = OrcFilters.createFilter(stored, filters, Option.empty());
      if (argument.isDefined()) {
        options.searchArgument((SearchArgument) argument.get(), stored.fieldNames());
      }
      records = reader.rows(options);
      opened = true;
    } finally {
      if (!opened) {
        reader.close();
      }
    }
    decoded = (raw ? row : SchemaEvolution.createEventSchema(row)).createRowBatch(capacity);
    kept = new int[capacity];

    int width = data.length() + partition.length();
    org.apache.spark.sql.vectorized.ColumnVector[] columns = new org.apache.spark.sql.vectorized.ColumnVector[width];
    org.apache.spark.sql.vectorized.ColumnVector[] selected = new org.apache.spark.sql.vectorized.ColumnVector[width];
    orcColumns = new OrcColumnVector[width];
    moved = new ColumnVector[width];
    ColumnVector[] fields = raw ? decoded.cols : ((StructColumnVector) decoded.cols[ROW]).fields;
    TypeDescription inFile = raw ? reader.getSchema() : SchemaEvolution.getBaseRow(reader.getSchema());
    for (int i = 0; i < place.length; i++) {
      DataType type = data.fields()[i].dataType();
      if (place[i] < 0) {
        int field = -1 - place[i];
        TypeDescription read = (TypeDescription) row.getChildren().get(field);
        if (isShortDecimal(read, data.fields()[i].name(), inFile)) {
          fields[field] = new Decimal64ColumnVector(capacity, read.getPrecision(), read.getScale());
          columns[i] = new DecimalColumn(type, (Decimal64ColumnVector) fields[field]);
        } else {
          columns[i] = orcColumns[i] = orcColumn(type, fields[field]);
          if (type.equals(DataTypes.TimestampType) && fields[field] instanceof TimestampColumnVector) {
            columns[i] = new TimestampColumn((TimestampColumnVector) fields[field], orcColumns[i]);
          }
        }
      } else if (place[i] == ENTITY) {
        columns[i] = constant(capacity, type, file.partition);
      } else if (decodesKeys) {
        columns[i] = orcColumns[i] = orcColumn(type, decoded.cols[WRITE_ID + place[i]]);
      } else if (WRITE_ID + place[i] == ROW_ID) {
        columns[i] = rowIds;
      } else {
        columns[i] = constant(capacity, type, WRITE_ID + place[i] == BUCKET ? file.bucket : file.writeId);
      }
      if (place[i] < 0 && MovedRows.canMove(fields[-1 - place[i]])) {
        moved[i] = fields[-1 - place[i]];
        selected[i] = columns[i];
      } else {
        selected[i] = KeptRows.of(columns[i], kept);
      }
    }
    InternalRow values = part.partitionValues();
    for (int i = 0; i < partition.length(); i++) {
      ConstantColumnVector value = new ConstantColumnVector(capacity, partition.fields()[i].dataType());
      ColumnVectorUtils.populate(value, values, i);
      columns[data.length() + i] = value;
      selected[data.length() + i] = value;
    }
    all = new ColumnarBatch(columns);
    some = new ColumnarBatch(selected);
  }

  /** The next batch with at least one row; null after the last. It is valid until the next call. */
  ColumnarBatch next() throws IOException {
    while (true) {
      long position = records.getRowNumber();
      if (!records.nextBatch(decoded) || decoded.size == 0) {
        return null;
      }
      int count = decoded.size;
      int live;
      if (decodesKeys) {
        live = tested(count);
      } else {
        rowIds.first = file.firstRowId + position;
        RowIds gone = deleted == null ? null : deleted.of(file.writeId, file.bucket);
        live = gone == null || gone.hasNone(rowIds.first, count) ? count : gone.without(rowIds.first, count, kept);
      }
      if (live > 0) {
        ColumnarBatch batch = live == count ? all : some;
        for (int i = 0; i < moved.length; i++) {
          if (moved[i] != null && live < count) {
            MovedRows.move(moved[i], kept, live);
          }
          if (orcColumns[i] != null) {
            orcColumns[i].setBatchSize(moved[i] == null ? count : live);
          }
        }
        batch.setNumRows(live);
        return batch;
      }
    }
  }

  void close() throws IOException {
    records.close();
  }

  /** Fills `kept` with the positions of live rows by their ACID columns; answers how many there are. */
  private int tested(int count) {
    LongColumnVector operation = (LongColumnVector) decoded.cols[OPERATION];
    LongColumnVector writeId = (LongColumnVector) decoded.cols[WRITE_ID];
    LongColumnVector bucket = (LongColumnVector) decoded.cols[BUCKET];
    LongColumnVector rowId = (LongColumnVector) decoded.cols[ROW_ID];
    LongColumnVector current = (LongColumnVector) decoded.cols[CURRENT];
    if (!file.is(AcidFile.PROVEN)) {
      requireInserts(operation, count);
      requireValues(writeId, count);
      requireValues(bucket, count);
      requireValues(rowId, count);
      requireValues(current, count);
    }
    boolean testsRows = file.is(AcidFile.TEST_ROWS) || file.above >= 0;
    if (!testsRows && deleted == null) {
      return count;
    }
    int live = 0;
    long lastWriteId = 0;
    int lastBucket = 0;
    boolean known = false;
    RowIds gone = null;
    for (int i = 0; i < count; i++) {
      if (testsRows) {
        long one = current.vector[current.isRepeating ? 0 : i];
        if (one <= file.above || file.is(AcidFile.TEST_ROWS) && !tests.sees(one)) {
          continue;
        }
      }
      if (deleted != null) {
        long ofRow = writeId.vector[writeId.isRepeating ? 0 : i];
        int property = (int) bucket.vector[bucket.isRepeating ? 0 : i];
        if (!known || ofRow != lastWriteId || property != lastBucket) {
          gone = deleted.of(ofRow, property);
          lastWriteId = ofRow;
          lastBucket = property;
          known = true;
        }
        if (gone != null && gone.contains(rowId.vector[rowId.isRepeating ? 0 : i])) {
          continue;
        }
      }
      kept[live++] = i;
    }
    return live;
  }

  private void requireInserts(LongColumnVector operation, int count) {
    requireValues(operation, count);
    int distinct = operation.isRepeating ? Math.min(count, 1) : count;
    for (int i = 0; i < distinct; i++) {
      if (operation.vector[i] != 0) {
        throw new RuntimeException(NO_INSERT + path + ": " + operation.vector[i]);
      }
    }
  }

  private void requireValues(LongColumnVector column, int count) {
    int distinct = column.noNulls ? 0 : column.isRepeating ? Math.min(count, 1) : count;
    for (int i = 0; i < distinct; i++) {
      if (column.isNull[i]) {
        throw new RuntimeException(NO_INSERT + path + ": -1");
      }
    }
  }

  /** Whether the file has the column with the type that is read, a decimal of up to 18 digits. */
  private static boolean isShortDecimal(TypeDescription read, String name, TypeDescription inFile) {
    if (read.getCategory() != TypeDescription.Category.DECIMAL
        || read.getPrecision() > TypeDescription.MAX_DECIMAL64_PRECISION) {
      return false;
    }
    for (int i = 0; i < inFile.getChildren().size(); i++) {
      if (name.equalsIgnoreCase((String) inFile.getFieldNames().get(i))) {
        TypeDescription stored = (TypeDescription) inFile.getChildren().get(i);
        return stored.getCategory() == TypeDescription.Category.DECIMAL
            && stored.getPrecision() == read.getPrecision()
            && stored.getScale() == read.getScale();
      }
    }
    return false;
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
