"""Other people's pipelines: a Spark Declarative Pipelines project, or a dbt manifest, as a warehouse."""
