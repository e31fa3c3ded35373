package acidplatform;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hive.ql.exec.vector.LongColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatch;
import org.apache.hadoop.hive.ql.io.sarg.SearchArgument;
import org.apache.orc.OrcFile;
import org.apache.orc.Reader;
import org.apache.orc.RecordReader;
import org.apache.orc.TypeDescription;
import org.apache.orc.impl.SchemaEvolution;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.orc.OrcUtils;
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
  static final int WRITE_ID = 1;
  private static final int BUCKET = 2;
  private static final int ROW_ID = 3;
  private static final int CURRENT = 4;
  static final int ROW = 5;

  private final String path;
  private final RowTests tests;
  private final AcidFile file;
  private final DeletedRows deleted;
  private final boolean decodesKeys;
  private final RecordReader records;
  private final VectorizedRowBatch decoded;
  private final LiveBatch batch;

  AcidFileReader(
      PartitionedFile part, RowTests tests, Configuration conf, AskedColumns asked, Seq filters, int capacity)
      throws Exception {
    this.tests = tests;
    file = (AcidFile) part.otherConstantMetadataColumnValues().apply(SnapshotFiles.FACTS);
    path = part.toPath().toUri().toString();
    boolean raw = file.is(AcidFile.RAW);
    TypeDescription row = TypeDescription.fromString(OrcUtils.getOrcSchemaString(asked.stored));
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
      boolean needsKeys = (asked.keys || deleted != null) && !byPosition;
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
      Option argument = PushedFilters.of(asked.stored, filters);
      if (argument.isDefined()) {
        options.searchArgument((SearchArgument) argument.get(), asked.stored.fieldNames());
      }
      records = reader.rows(options);
      opened = true;
    } finally {
      if (!opened) {
        reader.close();
      }
    }
    decoded = (raw ? row : SchemaEvolution.createEventSchema(row)).createRowBatch(capacity);
    TypeDescription stored = raw ? reader.getSchema() : SchemaEvolution.getBaseRow(reader.getSchema());
    batch = new LiveBatch(asked, path, file, row, stored, decoded, decodesKeys, part.partitionValues(), capacity);
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
        long first = file.firstRowId + position;
        batch.rowIds.first = first;
        RowIds gone = deleted == null ? null : deleted.of(file.writeId, file.bucket);
        live = gone == null || gone.hasNone(first, count) ? count : gone.without(first, count, batch.live);
      }
      if (live > 0) {
        return batch.of(count, live);
      }
    }
  }

  void close() throws IOException {
    records.close();
  }

  /** Fills the batch's `live` with the positions of live rows by their ACID columns; answers how many there are. */
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
    int[] positions = batch.live;
    int live = 0;
    long lastWriteId = 0;
    int lastBucket = 0;
    boolean looked = false;
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
        if (!looked || ofRow != lastWriteId || property != lastBucket) {
          gone = deleted.of(ofRow, property);
          lastWriteId = ofRow;
          lastBucket = property;
          looked = true;
        }
        if (gone != null && gone.contains(rowId.vector[rowId.isRepeating ? 0 : i])) {
          continue;
        }
      }
      positions[live++] = i;
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
}
