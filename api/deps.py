"""What routes are given: settings, the store of plans, the place where work runs."""

from typing import Annotated

from fastapi import Depends, Request

from api.asking import Accuracy, Asking
from api.settings import Settings
from api.store import Database, PlanStore
from api.work import Work


def get_settings(request: Request) -> Settings:
    """The settings of this server."""
    settings: Settings = request.app.state.settings
    return settings


def get_store(request: Request) -> PlanStore:
    """The plans of this server."""
    store: PlanStore = request.app.state.store
    return store


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


DatabaseDep = Annotated[Database, Depends(get_database)]
SettingsDep = Annotated[Settings, Depends(get_settings)]
StoreDep = Annotated[PlanStore, Depends(get_store)]
WorkDep = Annotated[Work, Depends(get_work)]
AskingDep = Annotated[Asking, Depends(get_asking)]
AccuracyDep = Annotated[Accuracy, Depends(get_accuracy)]
