package redisqueue

import "github.com/redis/go-redis/v9"

// take moves up to ARGV[1] jobs: first those that a bridge took more than ARGV[2] seconds ago
// and has not settled, or has parked, half of the jobs at most, so that they do not hide others; then by lane, in it from the sorted set, then from the left of the
// list. It returns the number of those without an id, which are dead letters now, how many dead
// letters there are, and then lane, id and text of each job. Its first write needs no memory, and a server that is full
// refuses none of the others then: nothing is popped and lost.
var take = redis.NewScript(`
local processing, taken, dlq = KEYS[1], KEYS[2], KEYS[3]
local letters = redis.call('LLEN', dlq)
local now, limit, refused, jobs = tonumber(redis.call('TIME')[1]), tonumber(ARGV[1]), 0, {}
local function add(lane, id, text)
	redis.call('ZADD', taken, now, lane .. ':' .. id)
	table.insert(jobs, lane)
	table.insert(jobs, id)
	table.insert(jobs, text)
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', taken, '-inf', now - tonumber(ARGV[2]), 'LIMIT', 0, math.ceil(limit / 2))) do
	local lane, id = string.match(member, '^(%a+):(.*)$')
	local text = redis.call('HGET', processing, id)
	if text then add(lane, id, text) else redis.call('ZREM', taken, member) end
	limit = limit - 1
end
for l = 1, 3 do
	local lane, sorted, list = ARGV[2 + l], KEYS[2 + 2 * l], KEYS[3 + 2 * l]
	while limit > 0 do
		local text = redis.call('ZPOPMIN', sorted)[1] or redis.call('LPOP', list)
		if not text then break end
		local ok, job = pcall(cjson.decode, text)
		local id = ok and type(job) == 'table' and (job.id or job.jobId)
		if type(id) == 'string' and id ~= '' then
			redis.call('HSET', processing, id, text)
			add(lane, id, text)
		else
			redis.call('RPUSH', dlq, cjson.encode({reason = 'want a JSON object with a text as id or jobId', job = text}))
			refused = refused + 1
		end
		limit = limit - 1
	end
end
table.insert(jobs, 1, refused)
table.insert(jobs, 2, letters + refused)
return jobs`)

// park leaves jobs that take has moved for ARGV[2] seconds: they are marked as taken so long ago that
// they are taken up then, as if their bridge had died. ARGV[1] is that of take; then lane and id of each job.
var park = redis.NewScript(`
local now = tonumber(redis.call('TIME')[1])
for i = 3, #ARGV, 2 do
	redis.call('ZADD', KEYS[1], 'XX', now - tonumber(ARGV[1]) + tonumber(ARGV[2]), ARGV[i] .. ':' .. ARGV[i + 1])
end`)

// settle ends what take began: for each job ARGV has lane, id, and the text of its dead letter;
// empty: it is a task.
var settle = redis.NewScript(`
for i = 1, #ARGV, 3 do
	local there = redis.call('HDEL', KEYS[1], ARGV[i + 1])
	redis.call('ZREM', KEYS[2], ARGV[i] .. ':' .. ARGV[i + 1])
	if there == 1 and ARGV[i + 2] ~= '' then redis.call('RPUSH', KEYS[3], ARGV[i + 2]) end
end`)
