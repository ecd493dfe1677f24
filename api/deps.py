"""What routes are given: settings, the store of plans, the place where work runs."""

from typing import Annotated

from fastapi import Depends, Request

from api.asking import Accuracy, Asking
from api.jobs import Jobs
from api.keys import Caller
from api.runs.keeper import Keeper
from api.settings import Settings
from api.store import Database
from api.store.plans import Plans
from api.store.watch import Watch
from api.work import Work


def get_settings(request: Request) -> Settings:
    """The settings of this server."""
    settings: Settings = request.app.state.settings
    return settings


def get_plans(request: Request) -> Plans:
    """The plans of this server; its calls block, so use them in a thread."""
    plans: Plans = request.app.state.plans
    return plans


def get_jobs(request: Request) -> Jobs:
    """The searches of this server; its calls block."""
    jobs: Jobs = request.app.state.jobs
    return jobs


def get_watch(request: Request) -> Watch:
    """Who waits for plans of this server."""
    watch: Watch = request.app.state.watch
    return watch


def get_database(request: Request) -> Database:
    """The database of this server; its transactions block, so use them in a thread."""
    database: Database = request.app.state.database
    return database


def get_work(request: Request) -> Work:
    """Where this server runs searches and evaluations."""
    work: Work = request.app.state.work
    return work


def get_asking(request: Request) -> Asking:
    """Where this server runs questions that take seconds."""
    asking: Asking = request.app.state.asking
    return asking


def get_accuracy(request: Request) -> Accuracy:
    """What this server knows about the accuracy of predictions."""
    accuracy: Accuracy = request.app.state.accuracy
    return accuracy


def get_keeper(request: Request) -> Keeper:
    """Who looks after the runs of this server; its calls block."""
    keeper: Keeper = request.app.state.keeper
    return keeper


def get_caller(request: Request) -> Caller:
    """Who asks."""
    caller: Caller = request.scope["state"]["caller"]
    return caller


DatabaseDep = Annotated[Database, Depends(get_database)]
SettingsDep = Annotated[Settings, Depends(get_settings)]
PlansDep = Annotated[Plans, Depends(get_plans)]
StoreDep = Annotated[Plans, Depends(get_plans)]
JobsDep = Annotated[Jobs, Depends(get_jobs)]
WatchDep = Annotated[Watch, Depends(get_watch)]
WorkDep = Annotated[Work, Depends(get_work)]
AskingDep = Annotated[Asking, Depends(get_asking)]
AccuracyDep = Annotated[Accuracy, Depends(get_accuracy)]
KeeperDep = Annotated[Keeper, Depends(get_keeper)]
CallerDep = Annotated[Caller, Depends(get_caller)]
