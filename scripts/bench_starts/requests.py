"""What a recording of requests tells: disk time, seeks, sizes, pauses, and how alike two starts are."""
import csv
import statistics

SECTOR = 512
BLOCK = 4096


class Requests:
    """The requests of one start, in the order in which they came."""

    def __init__(self, path):
        self.path = path
        with open(path, newline="") as file:
            rows = [(float(row["t_us"]), row["op"], int(row["off"]), int(row["len"]), float(row["lat_us"] or 0))
                    for row in csv.DictReader(file)]
        self.rows = sorted(rows)
        self.reads = [row for row in self.rows if row[1] == "R"]

    def figures(self):
        """All times in milliseconds."""
        reads = self.reads
        sizes = [size for _, _, _, size, _ in reads]
        return {
            "reads": len(reads),
            "read_bytes": sum(sizes),
            "writes": sum(row[1] == "W" for row in self.rows),
            # The time in which somebody waited for a read, each moment counted once: with one arm that is the sum of
            # the times that the disk took for each.
            "disk_ms": busy_us(reads) / 1e3,
            "disk_with_writes_ms": busy_us(self.rows) / 1e3,
            # Each read from its request to its end, with its wait for others.
            "response_sum_ms": sum(row[4] for row in reads) / 1e3,
            "response_mean_ms": sum(row[4] for row in reads) / 1e3 / len(reads) if reads else 0.0,
            "seek_sectors": sum(distances(reads)),
            "seeks": sum(distance > 0 for distance in distances(reads)),
            "read_bytes_median": statistics.median(sizes) if sizes else 0,
            "pause_median_ms": statistics.median(pauses_us(reads) or [0]) / 1e3,
            "overlapping_share": overlapping(reads) / len(reads) if reads else 0.0,
        }

    def blocks(self):
        """Addresses of the blocks that were read, in order."""
        return [block for _, _, off, size, _ in self.reads for block in range(off // BLOCK, -(-(off + size) // BLOCK))]


def busy_us(rows):
    """How long at least one of these was under way."""
    busy, until = 0.0, float("-inf")
    for start, _, _, _, took in rows:
        end = start + took
        if end > until:
            busy += end - max(start, until)
            until = end
    return busy


def distances(rows):
    """Sectors from the end of each request to the next."""
    ends = [off + size for _, _, off, size, _ in rows]
    return [abs(row[2] - end) // SECTOR for row, end in zip(rows[1:], ends, strict=False)]


def pauses_us(rows):
    """Times from the end of all that was under way to the next request."""
    pauses, until = [], None
    for start, _, _, _, took in rows:
        if until is not None and start > until:
            pauses.append(start - until)
        until = max(until or 0, start + took)
    return pauses


def overlapping(rows):
    """Requests that came while another was under way."""
    count, until = 0, float("-inf")
    for start, _, _, _, took in rows:
        count += start < until
        until = max(until, start + took)
    return count


def likeness(first, second):
    """How alike two starts are: shares of the longer one."""
    a, b = ([(row[2], row[3]) for row in requests.reads] for requests in (first, second))
    blocks_a, blocks_b = first.blocks(), second.blocks()
    common = len(set(blocks_a) & set(blocks_b))
    return {
        "same_blocks": share(common, max(len(set(blocks_a)), len(set(blocks_b)))),
        "blocks_in_same_order": share(longest_common(blocks_a, blocks_b), max(len(blocks_a), len(blocks_b))),
        "requests_in_same_order": share(longest_common(a, b), max(len(a), len(b))),
    }


def share(part, whole):
    return part / whole if whole else 1.0


def longest_common(a, b):
    """Length of the longest common subsequence; a bit for each item of `a` (Hyyro 2004), as lists are long."""
    places = {}
    for number, item in enumerate(a):
        places[item] = places.get(item, 0) | 1 << number
    full = (1 << len(a)) - 1
    row = full
    for item in b:
        hits = row & places.get(item, 0)
        row = (row + hits | row - hits) & full
    return len(a) - row.bit_count()
