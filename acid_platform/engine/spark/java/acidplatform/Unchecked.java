package acidplatform;

/** Throws any exception from a method that declares none, so that Spark sees the one that happened. */
final class Unchecked {
  private Unchecked() {}

  static RuntimeException of(Throwable error) {
    org.apache.spark.unsafe.Platform.throwException(error);
    return new IllegalStateException(error);
  }
}
