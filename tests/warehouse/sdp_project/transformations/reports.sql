-- what SQL defines; comments; and "strings; with marks"
CREATE MATERIALIZED VIEW orders_per_minute
COMMENT 'how many, by minute'
AS SELECT date_trunc('minute', ordered_at) AS minute, count(*) AS n, sum(amount) AS amount
FROM orders GROUP BY 1;

CREATE TEMPORARY VIEW small AS SELECT * FROM orders WHERE amount < 50;

CREATE STREAMING TABLE small_orders AS SELECT * FROM STREAM(small);

CREATE STREAMING TABLE letters;
CREATE FLOW from_orders AS INSERT INTO letters BY NAME
SELECT customer, 'order; thanks' AS text, ordered_at AS at FROM STREAM orders WHERE amount >= 100;

CREATE MATERIALIZED VIEW even AS SELECT id FROM numbers WHERE id % 2 = 0;
