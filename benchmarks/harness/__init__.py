"""What benchmark scripts share: the names exported here, and `benchmarks.harness.style` to draw."""

from benchmarks.harness.context import Context as Context
from benchmarks.harness.model import Benchmark as Benchmark
from benchmarks.harness.model import Claim as Claim
from benchmarks.harness.model import Pivot as Pivot
from benchmarks.harness.model import Results as Results
from benchmarks.harness.model import Row as Row
