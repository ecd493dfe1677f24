"""torchtitan's options: 0.3's command line, TOML of 0.1 and 0.2."""
