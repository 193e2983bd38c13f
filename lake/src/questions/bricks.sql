-- Where the time of passes goes: each brick's share of the wall time of all runs, and the unattributed rest; on the host and on each device by itself.
WITH own AS (
  SELECT b.phase AS phase, b.device AS device, coalesce(b.brick, 'unattributed') AS brick, sum(b.exclusive_ns) AS ns,
    sum(b.calls) AS calls, count(DISTINCT b.run_id) AS runs
  FROM bricks b
  JOIN runs r ON r.run_id = b.run_id
  CROSS JOIN params p
  WHERE b.kind <> 'kernel' AND b.phase IS NOT NULL
    AND r.date >= p.since AND r.date <= p.until
    AND (p.model = '' OR r.model = p.model) AND (p.phase = '' OR b.phase = p.phase)
  GROUP BY b.phase, b.device, coalesce(b.brick, 'unattributed')
),
-- 1e2: Spark takes 100.0 for a decimal number, and rounds small shares.
shares AS (
  SELECT phase, device, brick, runs, calls, ns,
    1e2 * ns / sum(ns) OVER (PARTITION BY phase, device) AS percent
  FROM own
)
-- One brick is chosen last: its share is of the time of all.
SELECT s.phase AS phase, s.device AS device, s.brick AS brick, s.runs AS runs, s.calls AS calls,
  s.ns / 1e9 AS seconds, s.percent AS percent
FROM shares s
CROSS JOIN params p
WHERE p.brick = '' OR s.brick = p.brick
ORDER BY 1, 2, s.ns DESC, 3
