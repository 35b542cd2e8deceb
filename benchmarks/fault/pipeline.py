"""The pipeline under faults: two streams, a dimension, and a table of every mode. A trial copies it into its folder."""

from pyspark.sql import functions as F

import headgate as hg

wh = hg.Warehouse("faults")

wh.stream(
    "orders",
    hg.Files(
        "landing/orders", format="json", schema="ts timestamp, id long, customer long, item long, amount long", settle=0
    ),
    time="ts",
    period="1 second",
    partition="10 minutes",
    max_future=None,
)
wh.stream(
    "clicks",
    hg.Files("landing/clicks", format="csv", schema="ts timestamp, id long, customer long", settle=0),
    time="ts",
    period="2 seconds",
    partition="10 minutes",
    max_future=None,
)
wh.dimension("items", hg.Files("landing/items", format="csv", schema="item long, category string", settle=0))

# append
wh.sql("large", "select ts, id, customer, amount from orders where amount >= 500", time="ts", partition="10 minutes")
wh.sql(
    "categorised",
    "select o.ts, o.id, o.amount, i.category from orders o join items i on o.item = i.item",
    time="ts",
    partition="10 minutes",
)


@wh.table(time="ts", partition="10 minutes", priority=3)
def marked(orders):
    """Every order with a mark that Python computes, so that there are Python workers."""
    mark = F.udf(lambda amount: amount * 7 % 13, "long")
    return orders.select("ts", "id", mark("amount").alias("mark"))


# merge
wh.sql(
    "by_minute",
    "select date_trunc('minute', ts) as minute, item, count(*) as orders, sum(amount) as amount "
    "from orders group by 1, 2",
    time="minute",
    partition="10 minutes",
    priority=5,
)
wh.sql("totals", "select customer, count(*) as orders, sum(amount) as amount from orders group by 1", time=None)
# blocks
wh.sql(
    "visitors",
    "select date_trunc('minute', ts) as minute, count(distinct customer) as customers from clicks group by 1",
    time="minute",
    partition="10 minutes",
)
# keys
wh.sql(
    "active",
    "select customer, count(distinct item) as items from orders group by customer having count(*) >= 5",
    time=None,
)
# whole
wh.sql("top", "select customer, amount from totals order by amount desc, customer limit 10", time=None)
# a table on a table
wh.sql(
    "by_hour",
    "select date_trunc('hour', minute) as hour, sum(orders) as orders, max(amount) as largest "
    "from by_minute group by 1",
    time="hour",
    partition="1 hour",
)
