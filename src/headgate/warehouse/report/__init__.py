"""What a run did, for people: reports, charts, the drawing of the graph."""
