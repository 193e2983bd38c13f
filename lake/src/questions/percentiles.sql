-- Percentiles of a brick's or kernel's spans (--brick NAME, all without it), from the histograms of all runs: to within 0.8 %, and NULL where there are too few spans.
WITH total AS (
  SELECT d.phase AS phase, d.device AS device, d.kind AS kind, d.name AS name, d.from_ns AS from_ns,
    d.to_ns AS to_ns, sum(d.spans) AS spans
  FROM durations d
  JOIN runs r ON r.run_id = d.run_id
  CROSS JOIN params p
  WHERE d.phase IS NOT NULL AND r.date >= p.since AND r.date <= p.until
    AND (p.brick = '' OR d.name = p.brick) AND (p.phase = '' OR d.phase = p.phase)
    AND (p.model = '' OR r.model = p.model)
  GROUP BY d.phase, d.device, d.kind, d.name, d.from_ns, d.to_ns
),
running AS (
  SELECT phase, device, kind, name, from_ns, to_ns, spans,
    sum(spans) OVER (PARTITION BY phase, device, kind, name ORDER BY from_ns
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS below,
    sum(spans) OVER (PARTITION BY phase, device, kind, name) AS n
  FROM total
)
SELECT
  phase, device, kind, name, max(n) AS spans,
  -- The middle of the bucket in which so large a part of all spans is reached. As in reports, each is stated from so
  -- many spans on that one of them lies above it with 99 % certainty.
  min(CASE WHEN n >= 7 AND below >= 0.5 * n THEN (from_ns + to_ns - 1) / 2.0 END) AS p50_ns,
  min(CASE WHEN n >= 44 AND below >= 0.9 * n THEN (from_ns + to_ns - 1) / 2.0 END) AS p90_ns,
  min(CASE WHEN n >= 459 AND below >= 0.99 * n THEN (from_ns + to_ns - 1) / 2.0 END) AS p99_ns,
  min(CASE WHEN n >= 4603 AND below >= 0.999 * n THEN (from_ns + to_ns - 1) / 2.0 END) AS p999_ns,
  max(to_ns) AS all_below_ns
FROM running
GROUP BY phase, device, kind, name
ORDER BY 1, 2, 3, 5 DESC, 4
