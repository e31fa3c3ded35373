"""Queries that Spark refuses and a lenient parser takes, and conditions of no type.

`{t}` is a table with the columns id and i.
"""

REFUSED = """
    SELECT id, FROM {t} | SELECT *, FROM {t} | SELECT id FROM {t}, | SELECT 1 AS x,
    SELECT id FROM {t} WHERE i IN (1, 2,) | SELECT coalesce(i, 2,) AS x FROM {t}
    SELECT * FROM VALUES (1, 2,) AS v(a, b) | SELECT * FROM VALUES (1) AS v(a,)
    SELECT i FROM {t} GROUP BY i, | SELECT i FROM {t} ORDER BY i,
    SELECT count(*) OVER (PARTITION BY i,) AS x FROM {t} | WITH a AS (SELECT 1), SELECT * FROM a
    SELECT id FROM {t} LIMIT '1' | SELECT id FROM {t} LIMIT 1 OFFSET '1'
    SELECT id FROM {t} ORDER BY id LIMIT 1 + 0, 2 | SELECT id FROM {t} OFFSET 1 LIMIT 1
    SELECT id FROM {t} LIMIT 1 LIMIT 2 | SELECT id FROM {t} ORDER BY id WHERE id = 1
    SELECT id FROM {t} GROUP BY id WHERE id = 1 | SELECT id FROM {t} HAVING id = 1 GROUP BY id
    SELECT id FROM {t} WHERE id = 1 WHERE id = 2 | SELECT id FROM {t} ORDER BY
    SELECT id FROM {t} WHERE | SELECT id FROM {t} HAVING | SELECT * FROM | SELECT 1 +
    SELECT id AS 'x' FROM {t} | SELECT id AS "x" FROM {t} | SELECT id x y FROM {t}
    SELECT id FROM {t} WHERE EXISTS (SELECT 1) IS NULL
    SELECT id FROM {t} WHERE EXISTS (SELECT 1) = true
    SELECT id FROM {t} WHERE true = EXISTS (SELECT 1)
    SELECT a.id FROM {t} a JOIN {t} b ON | SELECT id FROM {t} a JOIN {t} b USING id
    SELECT id FROM {t} UNION | SELECT id FROM {t} ORDER BY id ASC DESC
    SELECT CASE WHEN true 1 END AS x | SELECT CASE END AS x | SELECT CASE ELSE 1 END AS x
    SELECT max(i) FILTER (i > 1) AS x FROM {t} | SELECT t.* EXCLUDE (id) FROM {t} t
    SELECT CAST(1 AS text) AS x | SELECT CAST(1 AS number) AS x | SELECT CAST(1 AS varchar) AS x
    SELECT CAST(1 AS double precision) AS x | SELECT CAST(1) AS x | SELECT 0x1F AS x
    WITH a AS (SELECT 1 AS x), A AS (SELECT 2 AS x) SELECT * FROM a
    WITH a AS (SELECT no_such FROM {t}) SELECT id FROM {t}
    WITH a AS (SELECT 1 AS x), b AS (SELECT id + no_such FROM {t}, a) SELECT x FROM a
    SELECT upper() AS x | SELECT coalesce() AS x | SELECT greatest(1) AS x | SELECT nvl(1) AS x
    SELECT if(true, 1) AS x | SELECT round() AS x | SELECT sum() AS x FROM {t} | SELECT mod(1) AS x
    SELECT date_add() AS x | SELECT date_trunc() AS x | SELECT nullif(1) AS x
    SELECT id FROM {t} WHERE NULL | SELECT id FROM {t} WHERE 1 | SELECT id FROM {t} WHERE 'true'
    SELECT CASE WHEN NULL THEN 1 END AS x | SELECT count(*) FILTER (WHERE NULL) AS n FROM {t}
    SELECT array() AS x | SELECT map() AS x
    SELECT a.id FROM {t} a JOIN {t} b ON NULL | SELECT if(1, 2, 3) AS x
"""
TAKEN = """
    SELECT if(NULL, 1, 2) AS x | SELECT if((NULL), 1, 2) AS x | SELECT if(NOT NULL, 1, 2) AS x
    SELECT if(n, 1, 2) AS x FROM (SELECT NULL AS n) q | SELECT nvl2(NULL, 1, 2) AS x
    SELECT count(*) AS n FROM {t} HAVING NULL | SELECT count(*) AS n FROM {t} HAVING NULL OR true
    SELECT count(*) AS n FROM {t} HAVING 1 | SELECT count(*) AS n FROM {t} HAVING count(*)
    SELECT count(*) AS n FROM {t} HAVING CAST(NULL AS int)
    SELECT count(*) AS n FROM {t} WHERE NULL OR id = 1 | SELECT id FROM {t} WHERE NOT NULL
    SELECT id FROM {t} WHERE NULL IN (SELECT i FROM {t}) | SELECT concat() AS x
    SELECT a.id FROM {t} a JOIN {t} b ON NULL AND a.id = b.id
    WITH a AS (SELECT 1 AS x) SELECT * FROM (WITH a AS (SELECT 2 AS x) SELECT * FROM a) q
    SELECT i, count(*) AS n FROM {t} GROUP BY i, ROLLUP (i) ORDER BY 1, 2
    SELECT id FROM (SELECT id FROM {t} ORDER BY id LIMIT 3) q WHERE id > 0 ORDER BY id LIMIT 1
    SELECT * EXCEPT (id) FROM (SELECT id, i FROM {t}) q WHERE id = 1
    SELECT max(i) FILTER (WHERE i > 1) AS x FROM {t} | SELECT CAST(1 AS varchar(3)) AS x
    SELECT (EXISTS (SELECT 1)) IS NULL AS x | SELECT id AS text FROM {t} WHERE id = 1
    SELECT CASE WHEN i > 1 THEN CASE WHEN id > 1 THEN 1 END END AS x FROM {t}
    SELECT i > 1 AS x, count(*) AS n FROM {t} GROUP BY CUBE (i > 1, id) ORDER BY 2, 1 LIMIT 1
    SELECT count(*) AS n FROM {t} GROUP BY GROUPING SETS ((i > 1, id), ()) ORDER BY 1 LIMIT 1
"""

OTHERWISE = """
    SELECT i AS l, l AS i FROM {t} ORDER BY l + 0 | SELECT i AS l FROM {t} ORDER BY -l
    SELECT i AS l, max(l) AS m FROM {t} GROUP BY i ORDER BY max(l)
    SELECT i AS q, max(l) AS m FROM {t} GROUP BY i ORDER BY max(q)
    SELECT a.i FROM {t} a JOIN {t} b ON a.i = b.i ORDER BY i + 0
    SELECT i FROM {t} ORDER BY -1 | SELECT i FROM {t} ORDER BY +1 | SELECT i FROM {t} ORDER BY (2)
    SELECT count(*) AS n FROM {t} GROUP BY -1 | SELECT count(*) AS n FROM {t} GROUP BY (1)
    SELECT i FROM {t} ORDER BY sum(l) OVER (PARTITION BY i)
    SELECT i, count(*) AS n FROM {t} GROUP BY i ORDER BY sum(count(*)) OVER (ORDER BY i)
    SELECT i, (SELECT max(b.l) FROM {t} b WHERE b.i = a.i) AS m FROM {t} a GROUP BY i
    SELECT i, (SELECT max(b.l) FROM {t} b WHERE b.i = a.i) AS m FROM {t} a GROUP BY ROLLUP (i)
    SELECT i, EXISTS (SELECT 1 FROM {t} b WHERE b.i = a.i) AS x FROM {t} a GROUP BY ROLLUP (i)
    SELECT sum(c) OVER (ORDER BY c) AS s FROM (SELECT 0.00000000000000000001 AS c FROM {t}) q
    SELECT sum(c) OVER (PARTITION BY c) AS s FROM (SELECT 0.00000000000000000001 AS c FROM {t}) q
    SELECT i FROM {t} a ORDER BY (SELECT max(b.l) FROM {t} b WHERE b.i = a.i)
    SELECT i FROM {t} a ORDER BY EXISTS (SELECT 1 FROM {t} b WHERE b.i = a.l)
    SELECT i FROM {t} ORDER BY i IN (SELECT i FROM {t})
    SELECT count(*) AS n FROM {t} a GROUP BY (SELECT max(b.l) FROM {t} b WHERE b.i = a.i)
    SELECT count(*) AS n FROM {t} GROUP BY i IN (SELECT i FROM {t})
    SELECT sum(l) OVER (PARTITION BY i IN (SELECT i FROM {t})) AS s FROM {t}
    SELECT sum(l) OVER (ORDER BY i ROWS BETWEEN 2 PRECEDING AND 3 PRECEDING) AS s FROM {t}
    SELECT sum(l) OVER (ORDER BY i ROWS BETWEEN 3 FOLLOWING AND 2 FOLLOWING) AS s FROM {t}
    SELECT sum(l) OVER (RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS s FROM {t}
    SELECT count(*) OVER (PARTITION BY ms) AS n FROM {t} | SELECT e + 1 FROM {t}
    SELECT max(e + 1) FROM {t} | SELECT named_struct('c', c).c AS x FROM {t}
    SELECT q.s.c AS x FROM (SELECT struct(c) AS s FROM {t}) q
    SELECT inline(array(struct(c))) FROM {t}
"""
"""Queries to which DuckDB gives another answer than Spark, or one where Spark refuses."""


def texts(several: str, table: str) -> list[str]:
    lines = (line.strip() for line in several.strip().splitlines())
    return [each.strip().format(t=table) for line in lines for each in line.split(" | ")]
