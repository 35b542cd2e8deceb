"""Updates of tables: what one takes in, how it is computed, written and committed."""
