package acidplatform;

import java.io.Serializable;
import java.util.Arrays;
import org.apache.spark.sql.types.StructType;

/** The columns of a scan: stored in files or virtual, in the order of `data`, and then those of the partition. */
final class AskedColumns implements Serializable {
  /** Virtual columns: the parts of a row's key, and the ordinal of its partition. */
  static final int WRITE_ID = 0;
  static final int BUCKET = 1;
  static final int ROW_ID = 2;
  static final int ENTITY = 3;
  static final int STORED = -1;

  final StructType data;
  final StructType partition;
  /** The columns of `data` that are stored in files. */
  final StructType stored;
  /** Whether a part of the key is among the columns. */
  final boolean keys;
  private final int[] kinds;

  /** `virtual`: the names of the virtual columns. */
  AskedColumns(StructType data, StructType partition, String[] virtual) {
    this.data = data;
    this.partition = partition;
    kinds = new int[data.length()];
    StructType fields = new StructType();
    boolean hasKeys = false;
    for (int i = 0; i < kinds.length; i++) {
      kinds[i] = Arrays.asList(virtual).indexOf(data.fields()[i].name());
      if (kinds[i] == STORED) {
        fields = fields.add(data.fields()[i]);
      }
      hasKeys = hasKeys || kinds[i] >= 0 && kinds[i] != ENTITY;
    }
    stored = fields;
    keys = hasKeys;
  }

  /** Which virtual column the column of `data` at this place is, or STORED. */
  int kind(int place) {
    return kinds[place];
  }

  StructType all() {
    StructType columns = data;
    for (int i = 0; i < partition.length(); i++) {
      columns = columns.add(partition.fields()[i]);
    }
    return columns;
  }
}
