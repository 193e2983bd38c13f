-- The slowest passes beside the median of their run, phase and device, and whether other work disturbed them.
WITH placed AS (
  SELECT q.run_id AS run_id, q.phase AS phase, q.pass AS pass, q.wall_ns AS wall_ns,
    q.kv_position AS kv_position, q.is_disturbed AS is_disturbed,
    coalesce(q.device, '') AS device, coalesce(q.test, '') AS test,
    row_number() OVER (PARTITION BY q.run_id, q.phase, coalesce(q.device, ''), coalesce(q.test, '')
      ORDER BY q.wall_ns, q.pass) AS place,
    count(*) OVER (PARTITION BY q.run_id, q.phase, coalesce(q.device, ''), coalesce(q.test, '')) AS n
  FROM passes q
),
-- Of two passes neither is slow beside their median.
middle AS (
  SELECT run_id, phase, device, test, avg(wall_ns) AS wall_ns
  FROM placed
  WHERE 2 * place >= n AND 2 * place <= n + 2 AND n > 2
  GROUP BY run_id, phase, device, test
)
SELECT r.date AS date, r.machine AS machine, q.run_id AS run_id, nullif(q.device, '') AS device, q.phase AS phase,
  q.pass AS pass,
  q.kv_position AS kv_position, q.wall_ns / 1e6 AS wall_ms,
  q.wall_ns / m.wall_ns AS times_median, q.is_disturbed AS is_disturbed
FROM placed q
JOIN middle m ON m.run_id = q.run_id AND m.phase = q.phase AND m.device = q.device
  AND m.test = q.test
JOIN runs r ON r.run_id = q.run_id
CROSS JOIN params p
WHERE m.wall_ns > 0 AND r.date >= p.since AND r.date <= p.until
  AND (p.model = '' OR r.model = p.model) AND (p.phase = '' OR q.phase = p.phase)
ORDER BY 9 DESC, 3, 5, 6, q.device
