-- Percentiles of a brick's or kernel's spans (--brick NAME, all without it), from the histograms of all runs: to within 0.8 %.
WITH total AS (
  SELECT d.phase AS phase, d.kind AS kind, d.name AS name, d.from_ns AS from_ns, d.to_ns AS to_ns,
    sum(d.spans) AS spans
  FROM durations d
  JOIN runs r ON r.run_id = d.run_id
  CROSS JOIN params p
  WHERE d.phase IS NOT NULL AND r.date >= p.since AND r.date <= p.until
    AND (p.brick = '' OR d.name = p.brick) AND (p.phase = '' OR d.phase = p.phase)
    AND (p.model = '' OR r.model = p.model)
  GROUP BY d.phase, d.kind, d.name, d.from_ns, d.to_ns
),
running AS (
  SELECT phase, kind, name, from_ns, to_ns, spans,
    sum(spans) OVER (PARTITION BY phase, kind, name ORDER BY from_ns
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS below,
    sum(spans) OVER (PARTITION BY phase, kind, name) AS n
  FROM total
)
SELECT
  phase, kind, name, max(n) AS spans,
  -- The middle of the bucket in which so large a part of all spans is reached.
  min(CASE WHEN below >= 0.5 * n THEN (from_ns + to_ns - 1) / 2.0 END) AS p50_ns,
  min(CASE WHEN below >= 0.9 * n THEN (from_ns + to_ns - 1) / 2.0 END) AS p90_ns,
  min(CASE WHEN below >= 0.99 * n THEN (from_ns + to_ns - 1) / 2.0 END) AS p99_ns,
  min(CASE WHEN below >= 0.999 * n THEN (from_ns + to_ns - 1) / 2.0 END) AS p999_ns,
  max(to_ns - 1) AS most_ns
FROM running
GROUP BY phase, kind, name
ORDER BY 1, 2, 4 DESC, 3
