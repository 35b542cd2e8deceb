"""Tables in virtual time: updates on tracks, as declared in a scenario or as recorded in a trace."""
