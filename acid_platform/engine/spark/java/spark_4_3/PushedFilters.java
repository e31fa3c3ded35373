package acidplatform;

import org.apache.spark.sql.execution.datasources.orc.OrcFilters;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;

/** Spark's filters as ORC takes them, since Spark 4.3. */
final class PushedFilters {
  private PushedFilters() {}

  static Option of(StructType columns, Seq filters) {
    return OrcFilters.createFilter(columns, filters, Option.empty());
  }
}
