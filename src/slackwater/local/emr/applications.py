"""Applications: created, started, stopped, changed, deleted."""

from __future__ import annotations

import time
from typing import Any

from slackwater.local.emr.errors import Conflict, Invalid
from slackwater.local.emr.records import APPLICATION_IDLE, Application, new_id
from slackwater.local.emr.store import Scope, Store

_NOT_SETTINGS = ("clientToken", "tags", "applicationId")
_DEFAULTS: dict[str, Any] = {
    "architecture": "X86_64",
    "autoStartConfiguration": {"enabled": True},
    "autoStopConfiguration": {"enabled": True, "idleTimeoutMinutes": 15},
}


class Applications:
    """The operations on applications."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, scope: Scope, request: dict[str, Any]) -> Application:
        """Create an application, or return the one that this client token created."""
        settings = {key: value for key, value in request.items() if key not in _NOT_SETTINGS}
        settings = {**_DEFAULTS, **settings, "type": request["type"].upper()}
        if settings["type"] != "SPARK":
            raise Invalid(f"Application type {request['type']} is not supported: this cloud runs SPARK")
        with self._store.changed:
            for known in self._store.applications.values():
                if known.client_token == request["clientToken"] and scope == (known.account, known.region):
                    if known.settings == settings:
                        return known
                    raise Conflict("The client token was used with different parameters")
            token, tags = request["clientToken"], dict(request.get("tags", {}))
            application = Application(new_id(), scope.account, scope.region, settings, tags, token)
            self._store.applications[application.id] = application
            return application

    def get(self, scope: Scope, identifier: str) -> Application:
        """Return an application, stopped by now if it was idle for as long as it allows."""
        with self._store.changed:
            application = self._store.application(scope, identifier)
            self._stop_if_idle(application)
            return application

    def list(self, scope: Scope, states: list[str] | None) -> list[Application]:
        """Return the applications in any of `states`, the oldest first."""
        with self._store.changed:
            found = [item for item in self._store.applications.values() if (item.account, item.region) == scope]
            for application in found:
                self._stop_if_idle(application)
            return [item for item in found if states is None or item.state in states]

    def update(self, scope: Scope, request: dict[str, Any]) -> Application:
        """Change settings of an application that is created or stopped. Raises `Invalid` for one that is not."""
        with self._store.changed:
            application = self.get(scope, request["applicationId"])
            self._require(application, APPLICATION_IDLE, "updated")
            changes = {key: value for key, value in request.items() if key not in _NOT_SETTINGS}
            application.settings.update(changes)
            application.to(application.state)
            return application

    def start(self, scope: Scope, identifier: str) -> None:
        """Start an application; one that is started stays so."""
        with self._store.changed:
            application = self.get(scope, identifier)
            if application.state != "STARTED":
                self._require(application, APPLICATION_IDLE, "started")
                application.idle_since = time.time()
                application.to("STARTED")

    def stop(self, scope: Scope, identifier: str) -> None:
        """Stop an application. Raises `Invalid` while it has job runs that have not ended."""
        with self._store.changed:
            application = self.get(scope, identifier)
            if self._active(application):
                raise Invalid(f"Application {identifier} has job runs that have not ended: cancel them, or wait")
            if application.state == "STARTED":
                application.to("STOPPED")

    def delete(self, scope: Scope, identifier: str) -> None:
        """Delete an application, with its job runs. Raises `Invalid` for one that is started."""
        with self._store.changed:
            application = self.get(scope, identifier)
            self._require(application, APPLICATION_IDLE, "deleted")
            for run in self._store.of(identifier):
                del self._store.job_runs[run.id]
            del self._store.applications[identifier]

    def _active(self, application: Application) -> bool:
        return any(not run.final for run in self._store.of(application.id))

    def _stop_if_idle(self, application: Application) -> None:
        stop = application.settings["autoStopConfiguration"]
        if application.state != "STARTED" or not stop.get("enabled", True) or self._active(application):
            return
        if time.time() - application.idle_since >= stop.get("idleTimeoutMinutes", 15) * 60:
            application.to("STOPPED", "Idle for as long as autoStopConfiguration allows")

    def _require(self, application: Application, states: tuple[str, ...], what: str) -> None:
        if application.state not in states:
            raise Invalid(
                f"Application {application.id} is in state {application.state}: it can be {what} in "
                f"{' or '.join(states)}"
            )
