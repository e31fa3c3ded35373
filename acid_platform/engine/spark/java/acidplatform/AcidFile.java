package acidplatform;

import java.io.Serializable;
import java.nio.LongBuffer;

/** What is known of a file before it is opened, and how its rows are tested. */
final class AcidFile implements Serializable {
  /** Flags: the recorded statistics show that all rows are inserts with complete keys. */
  static final int PROVEN = 1;
  /** Some write ids in the file may be invalid for the snapshot. */
  static final int TEST_ROWS = 2;
  /** Some rows may be deleted. */
  static final int TEST_DELETES = 4;
  /** The row at position i has the key (writeId, bucket, firstRowId + i), if the keys ascend. */
  static final int CONTIGUOUS = 8;
  /** The file has no ACID columns, and keys by position (F15). */
  static final int RAW = 16;

  /** Of what is read of it, in bytes. */
  final long size;
  /** The ordinal of its partition. */
  final int partition;
  private final int flags;
  /** Rows with a currentTransaction up to this are in an earlier directory too, and are left out. */
  final long above;
  final long writeId;
  /** The bucket property of the rows. */
  final int bucket;
  final long firstRowId;

  AcidFile(LongBuffer in) {
    size = in.get();
    partition = (int) in.get();
    flags = (int) in.get();
    above = in.get();
    writeId = in.get();
    bucket = (int) in.get();
    firstRowId = in.get();
  }

  boolean is(int flag) {
    return (flags & flag) != 0;
  }
}
