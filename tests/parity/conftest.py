"""What needs torch is no test."""

collect_ignore_glob = ["make_rope_*", "rope_*"]
