"""How busy servers are: status variables, and how far replicas are behind."""
