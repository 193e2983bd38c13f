-- The kernels with the most time, by the brick that they ran in, and how fast they moved their bytes.
-- 1e0: Spark takes 1.0 for a decimal number, and rounds small quotients.
SELECT b.phase AS phase, b.device AS device, b.brick AS brick, b.kernel AS kernel, count(DISTINCT b.run_id) AS runs,
  sum(b.calls) AS calls, sum(b.total_ns) / 1e9 AS seconds,
  sum(CASE WHEN b.bytes IS NOT NULL THEN b.bytes END) * 1e0
    / nullif(sum(CASE WHEN b.bytes IS NOT NULL THEN b.total_ns END), 0) AS gb_per_s
FROM bricks b
JOIN runs r ON r.run_id = b.run_id
CROSS JOIN params p
WHERE b.kind = 'kernel' AND b.phase IS NOT NULL
  AND r.date >= p.since AND r.date <= p.until
  AND (p.model = '' OR r.model = p.model) AND (p.phase = '' OR b.phase = p.phase)
  AND (p.brick = '' OR b.brick = p.brick OR b.kernel = p.brick)
GROUP BY b.phase, b.device, b.brick, b.kernel
ORDER BY 7 DESC, 1, 2, 3, 4
