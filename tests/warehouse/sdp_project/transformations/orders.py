from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StringType, StructField, StructType, TimestampType

spark = SparkSession.active()

LANDING = "landing"
COLUMNS = StructType(
    [
        StructField("ordered_at", TimestampType()),
        StructField("customer", StringType()),
        StructField("amount", DoubleType()),
    ]
)


@dp.table(comment="every order, as it came")
def orders() -> DataFrame:
    reader = spark.readStream.format("json").schema(COLUMNS).option("maxFilesPerTrigger", 1)
    return reader.load(f"{LANDING}/orders")


@dp.temporary_view
def large_orders() -> DataFrame:
    return spark.read.table("orders").where("amount >= 50")


@dp.materialized_view
def customers() -> DataFrame:
    return spark.read.csv("customers.csv", schema="id string, country string", header=True)


@dp.materialized_view(name="sales_by_country")
def sales() -> DataFrame:
    known = spark.read.table("shop.customers")
    joined = spark.table("large_orders").join(known, F.col("customer") == F.col("id"))
    return joined.groupBy("country").agg(F.sum("amount").alias("amount"))


dp.create_streaming_table("movements")


@dp.append_flow(target="movements")
def sold() -> DataFrame:
    return spark.readStream.table("orders").select(F.col("ordered_at").alias("at"), "customer", "amount")


@dp.append_flow(target="movements", name="refunded")
def given_back() -> DataFrame:
    refunds = SparkSession.active().readStream.schema("at timestamp, customer string, amount double")
    return refunds.json("landing/refunds").withColumn("amount", -F.col("amount"))


@dp.materialized_view
def numbers() -> DataFrame:
    return spark.range(10)
