"""Which requests and operators exist, under which ids. Shared by the schedulers; knows no list of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic

from headgate.core.locality.errors import SchedulerMisuseError
from headgate.core.locality.tasks import Operator, OperatorId, RequestId, RequestT


class OperatorTable(Generic[RequestT]):
    """All requests and operators of one scheduler.

    An operator removed while it runs is unknown to everybody at once, but its id stays taken until the run ends:
    otherwise an operator added under the same name could run beside its predecessor.
    """

    __slots__ = ("_leaving", "_make_request", "_next_age", "operators", "requests")

    def __init__(self, make_request: Callable[[RequestId, int], RequestT]) -> None:
        self._make_request = make_request
        self._next_age = 0
        self.requests: dict[RequestId, RequestT] = {}
        #: mutually exclusive with _leaving
        self.operators: dict[OperatorId, Operator[RequestT]] = {}
        self._leaving: set[OperatorId] = set()

    def request(self, request: RequestId) -> RequestT:
        """The request of that id."""
        known = self.requests.get(request)
        if known is None:
            raise SchedulerMisuseError(
                f"request {request!r} is unknown; expected one that was submitted and not removed"
            )
        return known

    def operator(self, operator: OperatorId) -> Operator[RequestT]:
        """The operator of that id."""
        known = self.operators.get(operator)
        if known is None:
            raise SchedulerMisuseError(
                f"operator {operator!r} is unknown; expected one that was added and not removed. "
                "Stop sending to an operator before removing it"
            )
        return known

    def add_request(self, request: RequestId, operators: Iterable[OperatorId]) -> RequestT:
        """A new request with these operators; it is the newest one. All or nothing."""
        if request in self.requests:
            raise SchedulerMisuseError(
                f"request {request!r} is already being evaluated; remove it first or use another id"
            )
        names = tuple(operators)
        for name in names:
            self._check_free(name)
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchedulerMisuseError(
                f"request {request!r} lists operator {twice!r} twice; operator ids must be unique"
            )
        record = self.requests[request] = self._make_request(request, self._next_age)
        self._next_age += 1
        for name in names:
            self._add(name, record)
        return record

    def add_operator(self, operator: OperatorId, request: RequestId) -> None:
        """One more operator, doing nothing, for a request that is being evaluated."""
        record = self.request(request)
        self._check_free(operator)
        self._add(operator, record)

    def _add(self, operator: OperatorId, request: RequestT) -> None:
        self.operators[operator] = Operator(operator, request)
        request.operators[operator] = None

    def _check_free(self, operator: OperatorId) -> None:
        if operator in self.operators:
            owner = self.operators[operator].request.id
            raise SchedulerMisuseError(
                f"operator {operator!r} already belongs to request {owner!r}; ids must be unique"
            )
        if operator in self._leaving:
            raise SchedulerMisuseError(
                f"operator {operator!r} was removed while running and has not finished; wait for its finished()"
            )

    def remove_operator(self, operator: Operator[RequestT]) -> None:
        """Make it unknown. If it runs, it leaves when its run ends."""
        del self.operators[operator.id]
        del operator.request.operators[operator.id]
        if operator.is_running:
            operator.leaving = True
            self._leaving.add(operator.id)

    def remove_request(self, request: RequestT) -> None:
        """Forget a request that has no operators left."""
        del self.requests[request.id]

    def has_left(self, operator: Operator[RequestT]) -> None:
        """The last run of a removed operator has ended: its id is free again."""
        self._leaving.discard(operator.id)
