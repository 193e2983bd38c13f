-- Which runs back a number of tokens per second, and with which receipt; the nearest first.
SELECT s.test AS test, s.tokens_per_second AS tokens_per_second, s.low AS low, s.high AS high,
  r.date AS date, r.machine AS machine, coalesce(r.model, '') AS model,
  coalesce(r.quant, '') AS quant, r.engine AS engine, coalesce(r.commit, '') AS commit,
  CASE WHEN r.receipt_sha256 IS NULL THEN 'no receipt'
    WHEN r.receipt_verifies THEN 'verified' ELSE 'refused' END AS receipt,
  coalesce(r.receipt_sha256, '') AS receipt_sha256
FROM speeds s
JOIN runs r ON r.run_id = s.run_id
CROSS JOIN params p
WHERE abs(s.tokens_per_second - p.number) <= p.number * p.within / 100.0
  AND r.date >= p.since AND r.date <= p.until
  AND (p.model = '' OR r.model = p.model) AND (p.test = '' OR s.test = p.test)
ORDER BY abs(s.tokens_per_second - p.number), r.date DESC, r.run_id, s.test
