"""What tests share: data, processes, clusters, servers. No test is in here."""
