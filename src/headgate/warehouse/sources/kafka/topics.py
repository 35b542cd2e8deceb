"""What is known of topics without waiting for a broker: where their partitions begin and end.

A ``Lookout`` asks the brokers, for all topics of a cluster together, as long as somebody wants to know; the scheduler
only ever reads the last answer.
"""

from __future__ import annotations

import contextlib
import difflib
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from headgate.core import HeadgateError
from headgate.warehouse.sources.errors import ServerUnreachable
from headgate.warehouse.sources.kafka.arrivals import Arrivals
from headgate.warehouse.sources.kafka.options import KafkaClients, log
from headgate.warehouse.sources.lookout import UNASKED, Lookout

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

#: seconds between two looks at where topics end, and at their partitions and beginnings
ENDS_EVERY, PARTITIONS_EVERY = 0.1, 2.0
#: the longest wait for an answer
LONGEST_ANSWER = 5.0
#: how long ago records may have arrived that are there when a topic is looked at for the first time, in seconds
_AGES = (10.0, 60.0, 600.0, 3_600.0, 6 * 3_600.0, 86_400.0, 7 * 86_400.0, 30 * 86_400.0)
#: how often more is asked about the times in which most of them and the last one came, and for how many moments each
_ROUNDS, _MOMENTS = 3, 4
#: errors of brokers that cannot be reached
_SILENT = ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_AUTHENTICATION", "_SSL", "_WAIT_COORD")
_NO_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")


@dataclass(frozen=True, slots=True)
class TopicLook:
    """A topic as it was when it was last looked at.

    ``begins`` and ``ends`` are the offsets at which its partitions begin and end; of a topic with transactions, only
    what is decided counts. ``start`` is where to begin if nothing was loaded. ``problem`` says why this may be out of
    date; there is one as long as nothing is known.
    """

    id: str = ""
    begins: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    start: Mapping[int, int] = field(default_factory=dict)
    arrivals: Mapping[int, Arrivals] = field(default_factory=dict)
    problem: str = "waiting for the first answer"
    #: somebody answered, or was waited for in vain
    answered: bool = False
    #: what came before this moment has been seen, in wall-clock seconds since the epoch
    looked_at: float = float("-inf")

    @property
    def is_complete(self) -> bool:
        """Whether all was found out that a first look is for."""
        return bool(self.arrivals)


class WatchedTopic:
    """A topic of a cluster, and where to begin in it: ``earliest``, ``latest``, or a moment in epoch seconds."""

    def __init__(self, clients: KafkaClients, name: str, start: str | float, clock: Callable[[], float]) -> None:
        self.name = name
        self.start = start
        self.clock = clock
        #: replaced as a whole, so that it can be read at any time
        self.last = TopicLook(problem=f"waiting for the first answer of Kafka at {clients.servers}")
        self.asked = float("-inf")
        self._cluster = KafkaCluster.of(clients)

    def look(self) -> TopicLook:
        """The last look; more are taken from now on. Returns at once."""
        self.asked = time.monotonic()
        self._cluster.watch(self)
        return self.last

    def look_now(self) -> TopicLook:
        """A new look; waits for brokers."""
        with contextlib.suppress(HeadgateError):  # the look says so
            self._cluster.refresh([self], partitions=True)
        return self.last


class KafkaCluster:
    """The brokers of one cluster, asked by one thread about all topics that are watched."""

    #: as long as a topic uses them; then connections are closed
    _shared: ClassVar[weakref.WeakValueDictionary[tuple[object, ...], KafkaCluster]] = weakref.WeakValueDictionary()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def of(cls, clients: KafkaClients) -> KafkaCluster:
        with cls._lock:
            return cls._shared.setdefault(clients.key, cls(clients))

    def __init__(self, clients: KafkaClients) -> None:
        self._clients = clients
        self._guard = threading.Lock()
        self._topics: weakref.WeakSet[WatchedTopic] = weakref.WeakSet()
        self._partitions_at = float("-inf")
        self._lookout = Lookout[str, None](self._look, str, every=ENDS_EVERY, name="headgate-kafka")
        #: held while brokers are asked: one question at a time
        self._asking = threading.Lock()
        self._admin: AdminClient | None = None
        self._error = ""

    def watch(self, topic: WatchedTopic) -> None:
        """Look at a topic from now on, until nobody asks for it any more."""
        with self._guard:
            if topic not in self._topics:
                self._topics.add(topic)
                self._partitions_at = float("-inf")
        self._lookout.ask(self._clients.servers)

    def _look(self, servers: str) -> None:
        now = time.monotonic()
        with self._guard:
            topics = [topic for topic in self._topics if topic.asked > now - UNASKED]
            partitions = now - self._partitions_at >= PARTITIONS_EVERY
            if partitions:
                self._partitions_at = now
        if not topics:
            return
        try:
            self.refresh(topics, partitions=partitions)
        except BaseException:
            self._partitions_at = float("-inf")
            raise

    def refresh(self, topics: Collection[WatchedTopic], *, partitions: bool) -> None:
        """Look at topics now, and at their partitions and beginnings, too, if wanted. Raises if nobody answers."""
        with self._asking:
            looks = {topic: topic.last for topic in topics}
            begun = {topic: topic.clock() for topic in topics}
            try:
                if self._admin is None:
                    self._error = ""
                    self._admin = self._clients.admin(self._note_error)
                if partitions:
                    self._look_at_partitions(self._admin, looks)
                self._look_at_ends(self._admin, looks)
                looks = {t: look if look.problem else replace(look, looked_at=begun[t]) for t, look in looks.items()}
                self._error = ""
            except Exception as error:
                problem = str(error) if isinstance(error, HeadgateError) else self._problem(error)
                looks = {topic: replace(look, problem=problem, answered=True) for topic, look in looks.items()}
                log.warning("%s", problem)
                raise ServerUnreachable(problem) from None
            finally:
                for topic, look in looks.items():
                    topic.last = look

    def _note_error(self, error: Any) -> None:
        # That all brokers are down follows what has made them so, and says less.
        if not self._error or error.name() != "_ALL_BROKERS_DOWN":
            self._error = self._clients.hidden(str(error.str()))

    def _problem(self, error: Exception) -> str:
        """What an error of brokers means to a user."""
        if self._admin is not None:
            with contextlib.suppress(Exception):
                self._admin.poll(0)  # for what brokers, or those who look for them, have said before they gave up
        code = code_of(error)
        said = self._clients.hidden(text_of(error))
        if code in _SILENT:
            return f"Kafka at {self._clients.servers} does not answer ({self._error or said}); it is asked again"
        return f"Kafka at {self._clients.servers} refuses to answer: {said}; it is asked again"

    def _look_at_partitions(self, admin: AdminClient, looks: dict[WatchedTopic, TopicLook]) -> None:
        from confluent_kafka import TopicCollection

        names = sorted({topic.name for topic in looks})
        answers = admin.describe_topics(TopicCollection(names), request_timeout=LONGEST_ANSWER)
        for topic, look in looks.items():
            with self._about(topic, looks):
                described = answers[topic.name].result()
                topic_id = str(described.topic_id) if described.topic_id is not None else ""
                known = look if topic_id == look.id else TopicLook(answered=True)
                numbers = {partition.id for partition in described.partitions}
                looks[topic] = replace(
                    known, id=topic_id, problem="", ends={number: known.ends.get(number, 0) for number in numbers}
                )
        self._look_at_beginnings(admin, looks)

    def _look_at_beginnings(self, admin: AdminClient, looks: dict[WatchedTopic, TopicLook]) -> None:
        found = {topic: look for topic, look in looks.items() if not look.problem}
        for topic, begins in self._offsets(admin, found, _spec("earliest")).items():
            found[topic] = replace(found[topic], begins=begins)
        looks.update(found)
        new = {topic: look for topic, look in found.items() if not look.problem and not look.is_complete}
        if new:
            self._look_for_the_first_time(admin, new)
            looks.update(new)

    def _look_for_the_first_time(self, admin: AdminClient, looks: dict[WatchedTopic, TopicLook]) -> None:
        """How old is what is there, and where is loading to begin? If not all answer, this is asked again."""
        now = max(topic.clock() for topic in looks)
        ends = self._offsets(admin, looks, _spec("latest"))
        marks = {topic: {p: [(now, end)] for p, end in of_topic.items()} for topic, of_topic in ends.items()}
        ages = [now - age for age in _AGES]
        # The first moment is that of the first record.
        moments = {topic: {p: [0.0, *ages] for p in of_topic} for topic, of_topic in marks.items()}
        for _ in range(_ROUNDS + 1):
            self._add_marks(admin, looks, moments, marks, oldest=min(ages))
            moments = {
                topic: {p: Arrivals.of(found, now).finer(_MOMENTS) for p, found in of_topic.items()}
                for topic, of_topic in marks.items()
            }
        for topic, of_topic in marks.items():
            start = self._start(admin, topic, looks, ends[topic])
            if not looks[topic].problem:
                arrivals = {partition: Arrivals.of(found, now) for partition, found in of_topic.items()}
                looks[topic] = replace(looks[topic], arrivals=arrivals, start=start)

    def _add_marks(
        self,
        admin: AdminClient,
        looks: dict[WatchedTopic, TopicLook],
        moments: Mapping[WatchedTopic, Mapping[int, list[float]]],
        marks: dict[WatchedTopic, dict[int, list[tuple[float, int]]]],
        oldest: float,
    ) -> None:
        """Add what partitions had at these moments by the timestamps of records; ``oldest`` is the earliest to note."""
        asked: list[dict[tuple[str, int], Any]] = []
        for of_topic in moments.values():
            asked += [{} for _ in range(max(map(len, of_topic.values()), default=0) - len(asked))]
        for topic, of_topic in moments.items():
            for partition, wanted in of_topic.items():
                for number, moment in enumerate(wanted):
                    asked[number][topic.name, partition] = _spec(moment)
        answers = [self._ask(admin, specs) for specs in asked]
        for topic, of_topic in moments.items():
            with self._about(topic, looks):
                for partition, wanted in of_topic.items():
                    found = marks[topic][partition]
                    for number, moment in enumerate(wanted):
                        at = answers[number][topic.name, partition].result()
                        if moment == 0.0 and at.offset < 0:
                            break  # its records have no timestamps
                        # None as late as that: all that are there were there then.
                        found.append((max(moment, oldest), at.offset if at.offset >= 0 else found[0][1]))
                        if at.offset >= 0 and at.timestamp > 0:
                            found.append((max(at.timestamp / 1000, oldest), at.offset))
            if looks[topic].problem:
                marks.pop(topic, None)

    def _start(
        self,
        admin: AdminClient,
        topic: WatchedTopic,
        looks: dict[WatchedTopic, TopicLook],
        ends: Mapping[int, int],
    ) -> Mapping[int, int]:
        """Where to begin in each partition if nothing was loaded. If that is not known, its look has a problem."""
        if topic.start == "earliest" or topic.last.start:
            return looks[topic].begins  # a topic that was deleted and created again is loaded as a whole
        if topic.start == "latest":
            return ends
        this = {topic: looks[topic]}
        found = self._offsets(admin, this, _spec(float(topic.start))).get(topic, {})
        looks.update(this)
        # If there is no record as late as that, the next one will be.
        return {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}

    def _look_at_ends(self, admin: AdminClient, looks: dict[WatchedTopic, TopicLook]) -> None:
        known = {topic: look for topic, look in looks.items() if look.is_complete and look.ends}
        begun = {topic: topic.clock() for topic in known}  # what is not in the answers comes later than this
        ends = self._offsets(admin, known, _spec("latest"))
        looks.update(known)
        for topic, of_topic in ends.items():
            look, now = looks[topic], begun[topic]
            arrivals = {p: look.arrivals.get(p, Arrivals()).noted(end, now) for p, end in of_topic.items()}
            looks[topic] = replace(look, ends=of_topic, arrivals=arrivals, problem="")

    def _offsets(
        self, admin: AdminClient, looks: dict[WatchedTopic, TopicLook], spec: Any
    ) -> dict[WatchedTopic, dict[int, int]]:
        """An offset of every partition of topics; topics whose partitions do not answer are left out."""
        by_place = self._ask(admin, {(topic.name, n): spec for topic, look in looks.items() for n in look.ends})
        found: dict[WatchedTopic, dict[int, int]] = {}
        for topic, look in list(looks.items()):
            with self._about(topic, looks):
                found[topic] = {number: by_place[topic.name, number].result().offset for number in look.ends}
        return found if by_place else {}

    def _ask(self, admin: AdminClient, specs: Mapping[tuple[str, int], Any]) -> dict[tuple[str, int], Any]:
        """Ask for an offset of some partitions: the answers to wait for."""
        from confluent_kafka import IsolationLevel, TopicPartition

        if not specs:
            return {}
        level = IsolationLevel.READ_COMMITTED
        if self._clients.isolation == "read_uncommitted":
            level = IsolationLevel.READ_UNCOMMITTED
        answers = admin.list_offsets(
            {TopicPartition(name, number): spec for (name, number), spec in specs.items()},
            isolation_level=level,
            request_timeout=LONGEST_ANSWER,
        )
        return {(place.topic, place.partition): answer for place, answer in answers.items()}

    @contextlib.contextmanager
    def _about(self, topic: WatchedTopic, looks: dict[WatchedTopic, TopicLook]) -> Iterator[None]:
        """Note an error that is about one topic in its look; others are raised."""
        try:
            yield
        except Exception as error:
            code = code_of(error)
            if code in _SILENT or not code:
                raise
            if code not in _NO_TOPIC:
                looks[topic] = replace(
                    looks[topic], problem=f"the topic {topic.name!r}: {self._problem(error)}", answered=True
                )
                return
            servers, meant = self._clients.servers, self._meant(topic.name)
            problem = f"waiting for the topic {topic.name!r}, which does not exist in Kafka at {servers}{meant}"
            looks[topic] = replace(looks[topic], ends={}, problem=problem, answered=True)

    def _meant(self, name: str) -> str:
        """The name of a topic that is there and may be meant."""
        try:
            topics = self._admin.list_topics(timeout=LONGEST_ANSWER).topics if self._admin is not None else {}
        except Exception:
            return ""
        close = difflib.get_close_matches(name, topics, n=1)
        return f"; did you mean {close[0]!r}?" if close else ""


@dataclass(frozen=True)
class TopicEnds:
    """Topics as they are now: asks the brokers, and waits for their answers."""

    clients: KafkaClients

    def of(self, topic: str) -> dict[int, tuple[int, int]]:
        """The first offset of each partition, and the one after the last, also of transactions that are open."""
        from confluent_kafka import IsolationLevel, TopicPartition

        admin = self.clients.admin(lambda error: None)
        numbers = admin.list_topics(topic, timeout=LONGEST_ANSWER).topics[topic].partitions
        found = []
        for place in ("earliest", "latest"):
            answers = admin.list_offsets(
                {TopicPartition(topic, number): _spec(place) for number in numbers},
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=LONGEST_ANSWER,
            )
            found.append({asked.partition: answer.result().offset for asked, answer in answers.items()})
        return {number: (found[0][number], found[1][number]) for number in numbers}

    def is_there(self, topic: str) -> bool:
        return topic in self.clients.admin(lambda error: None).list_topics(timeout=LONGEST_ANSWER).topics

    def make_sure_of(self, topic: str, settings: Mapping[str, str], partitions: int = -1) -> None:
        """Make a topic if it is not there, by default with as many partitions as the cluster gives to new ones."""
        from confluent_kafka import admin as library

        if self.is_there(topic):
            return
        admin = self.clients.admin(lambda error: None)
        new: Any = library
        asked = new.NewTopic(topic, partitions, replication_factor=-1, config=dict(settings))
        made = admin.create_topics([asked], operation_timeout=LONGEST_ANSWER)
        try:
            made[topic].result()
        except Exception as error:
            if code_of(error) != "TOPIC_ALREADY_EXISTS":  # somebody else was quicker
                raise


def _spec(place: str | float) -> Any:
    """How to ask for an offset: ``earliest``, ``latest``, or the first one since a moment in epoch seconds."""
    from confluent_kafka import admin

    specs: Any = admin
    if isinstance(place, float):
        return specs.OffsetSpec.for_timestamp(round(place * 1000))
    return getattr(specs.OffsetSpec, place)()


def code_of(error: Exception) -> str:
    """The name of an error of Kafka, such as ``_TIMED_OUT``; empty if it is another one."""
    first = error.args[0] if error.args else None
    name = getattr(first, "name", None)
    return str(name()) if callable(name) else ""


def text_of(error: Exception) -> str:
    first = error.args[0] if error.args else None
    text = getattr(first, "str", None)
    return str(text()) if callable(text) else f"{type(error).__name__}: {error}"
