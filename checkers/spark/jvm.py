"""All that floodmark uses of PySpark without it being public, and why. No other module names a private
attribute of PySpark."""

import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, SQLContext
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

# -- its life: PySpark starts a JVM once, and does not notice that it ends -----------------------------------


def launch(conf: SparkConf | None = None) -> None:
    """Start the JVM, or find spark-submit's, without a context: a JVM that does not start is another error
    than a context that does not, and Python can import the judge meanwhile."""
    SparkContext._ensure_initialized(conf=conf)


def is_launched() -> bool:
    return SparkContext._jvm is not None


def process() -> subprocess.Popen[bytes] | None:
    """The JVM that this process has started: to wait for its end, or to kill it."""
    found: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return found


def context() -> SparkContext | None:
    """The context that exists, a notebook's for instance; getOrCreate would make one."""
    return SparkContext._active_spark_context


def is_stopped(spark: SparkContext) -> bool:
    """Whether somebody has called its stop()."""
    return spark._jsc is None


def works(spark: SparkContext) -> bool:
    """Whether its JVM is alive, and it has not stopped by itself (as when the JVM runs out of memory)."""
    try:
        return not spark._jsc.sc().isStopped()
    except (PySparkException, Py4JError, AttributeError, OSError):
        return False


def forget() -> None:
    """Forget a JVM that has ended, and what referred to it: a new one can be launched then."""
    with suppress(Exception):
        SparkContext._gateway.shutdown()  # type: ignore[union-attr]
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None


def silence_accumulators(spark: SparkContext) -> None:
    """Otherwise their server prints a traceback when the JVM dies; `works` detects that."""
    server: Any = getattr(spark, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


# -- its classes --------------------------------------------------------------------------------------------


def hadoop() -> Any:
    """Hadoop's classes, org.apache.hadoop: PySpark has no words for file systems."""
    assert SparkContext._jvm is not None
    return SparkContext._jvm.org.apache.hadoop


def java_net() -> Any:
    """Java's sockets: a judge has none of its own."""
    assert SparkContext._jvm is not None
    return SparkContext._jvm.java.net


def hadoop_configuration() -> Any:
    """Hadoop's settings, in Spark's current JVM: after one has died there is a new one."""
    spark = context()
    assert spark is not None
    return spark._jsc.hadoopConfiguration()


def array_of(kind: Any, *items: Any) -> Any:
    """A Java array, which some of Hadoop's methods take."""
    assert SparkContext._gateway is not None
    array = SparkContext._gateway.new_array(kind, len(items))
    for at, item in enumerate(items):
        array[at] = item
    return array


def map_in_arrow(frame: DataFrame, function: Callable[..., Any], to: StructType) -> DataFrame:
    """DataFrame.mapInArrow, which requires pandas without using it."""
    made = UserDefinedFunction(function, returnType=to, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = made(*(frame[name] for name in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
