"""What can be asked over HTTP beside plans: one file a question, its body and its answer; no web framework here."""
