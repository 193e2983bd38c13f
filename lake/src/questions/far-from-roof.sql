-- Bricks far from what their machine's memory can do: bytes that were stated, by the time and by the measured bandwidth.
SELECT r.machine AS machine, coalesce(r.model, '') AS model, coalesce(r.quant, '') AS quant,
  b.phase AS phase, b.brick AS brick,
  count(DISTINCT b.run_id) AS runs,
  sum(b.total_ns) / 1e9 AS seconds,
  100.0 * sum(b.bytes / r.read_bytes_per_second) / (sum(b.total_ns) / 1e9) AS percent_of_bandwidth
FROM bricks b
JOIN runs r ON r.run_id = b.run_id
CROSS JOIN params p
WHERE b.kind = 'brick' AND b.bytes > 0 AND b.total_ns > 0 AND b.device IS NULL
  AND b.phase IS NOT NULL AND r.read_bytes_per_second > 0
  AND r.date >= p.since AND r.date <= p.until
  AND (p.model = '' OR r.model = p.model) AND (p.phase = '' OR b.phase = p.phase)
  AND (p.brick = '' OR b.brick = p.brick)
GROUP BY r.machine, coalesce(r.model, ''), coalesce(r.quant, ''), b.phase, b.brick
ORDER BY 8, 1, 2, 3, 4, 5
