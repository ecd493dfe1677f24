"""A server process over a data folder: `python serve.py PORT DATA STORY`."""

import sys
from pathlib import Path

import uvicorn

from api.app import create_app
from api.settings import Settings

if __name__ == "__main__":
    port, data, story = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    stub = str(Path(__file__).with_name("stub_run.py"))
    settings = Settings(
        port=port,
        allow_runs=True,
        data_dir=data,
        run_command=(sys.executable, "-S", "-E", stub, story),
        run_grace_s=1.0,
        drain_s=0.0,
    )
    uvicorn.run(create_app(settings), host="127.0.0.1", port=port, log_level="error")
