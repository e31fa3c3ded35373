package acidplatform;

import java.sql.Timestamp;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.Iterator;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.hadoop.hive.ql.io.sarg.PredicateLeaf;
import org.apache.hadoop.hive.ql.io.sarg.SearchArgument;
import org.apache.hadoop.hive.serde2.io.HiveDecimalWritable;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** Which filters ORC compares with a file's statistics as Spark compares values. */
final class ExactFilters {
  /** In the text of a filter: with a NULL, ORC's builder fails. */
  private static final Pattern NULL = Pattern.compile("\\bnull\\b");
  /** 15 October 1582 in milliseconds: files count earlier days in the Julian calendar, and their statistics too. */
  private static final long FIRST_GREGORIAN = -12219292800000L;

  private ExactFilters() {}

  static boolean isExact(StructType columns, Object filter) {
    if (NULL.matcher(filter.toString()).find()) {
      return false;
    }
    Option made = PushedFilters.of(columns, SnapshotFiles.seq(Arrays.asList(new Object[] {filter})));
    if (!made.isDefined()) {
      return false;
    }
    Iterator leaves = ((SearchArgument) made.get()).getLeaves().iterator();
    while (leaves.hasNext()) {
      PredicateLeaf leaf = (PredicateLeaf) leaves.next();
      List several = leaf.getLiteralList();
      List literals = several == null ? Collections.singletonList(leaf.getLiteral()) : several;
      Iterator values = literals.iterator();
      while (values.hasNext()) {
        if (!isExact(values.next())) {
          return false;
        }
      }
    }
    return true;
  }

  private static boolean isExact(Object value) {
    if (value instanceof String) {
      // Writers keep bounds in the order of UTF-8, ORC compares UTF-16. With ASCII all text compares alike in both.
      String text = (String) value;
      for (int i = 0; i < text.length(); i++) {
        if (text.charAt(i) > 127) {
          return false;
        }
      }
      return true;
    }
    if (value instanceof Double) { // ORC takes -0.0 for less than 0.0
      return ((Double) value).doubleValue() != 0;
    }
    if (value instanceof Date) { // the statistics of old writers end at the millisecond
      boolean coarse = !(value instanceof Timestamp) || ((Timestamp) value).getNanos() / 1000 % 1000 == 0;
      return coarse && ((Date) value).getTime() >= FIRST_GREGORIAN;
    }
    return value == null
        || value instanceof Long
        || value instanceof Boolean
        || value instanceof HiveDecimalWritable;
  }
}
