/* Products of matrices: of fragments that threads of a subgroup hold, and of tiles in shared memory. */

/* A fragment: the digits of the thread index, then those of the value index, as (step, extent). */
struct dlc_fragment {
    int rows, columns, width, count;
    const int16_t *digits;
};

static const int16_t *dlc_extents_product(const int16_t *digits, int *product)
{
    *product = 1;
    for (int i = 0; i < digits[0]; ++i)
        *product *= digits[2 + 2 * i];
    return digits + 1 + 2 * digits[0];
}

static const int16_t *dlc_read_fragment(struct dlc_fragment *fragment, int rows, int columns, const int16_t *digits)
{
    fragment->rows = rows;
    fragment->columns = columns;
    fragment->digits = digits;
    return dlc_extents_product(dlc_extents_product(digits, &fragment->width), &fragment->count);
}

static int dlc_digits_sum(const int16_t *digits, int number)
{
    int sum = 0;
    for (int i = 0; i < digits[0]; ++i) {
        sum += number % digits[2 + 2 * i] * digits[1 + 2 * i];
        number /= digits[2 + 2 * i];
    }
    return sum;
}

static int dlc_element(const struct dlc_fragment *fragment, int thread, int number)
{
    const int16_t *of_value = fragment->digits + 1 + 2 * fragment->digits[0];
    return dlc_digits_sum(fragment->digits, thread) + dlc_digits_sum(of_value, number);
}

enum { DLC_F32, DLC_I32, DLC_F16, DLC_BF16, DLC_I8, DLC_U8, DLC_E4M3, DLC_E5M2 };
#define DLC_ELEMENTS 4096
#define DLC_TILE (256 * 32)

static const int dlc_dtype_sizes[] = {4, 4, 2, 2, 1, 1, 1, 1};

/* Decode a float with these numbers of exponent and mantissa bits; the largest exponent means infinity or NaN. */
static double dlc_small_float(unsigned bits, int exponent, int mantissa)
{
    const int bias = (1 << (exponent - 1)) - 1, power = bits >> mantissa & ((1 << exponent) - 1);
    const double part = bits & ((1u << mantissa) - 1), sign = bits >> (exponent + mantissa) & 1 ? -1 : 1;
    if (power == (1 << exponent) - 1)
        return part ? NAN : sign * INFINITY;
    return sign * (power ? ldexp(ldexp(1, mantissa) + part, power - bias - mantissa)
                         : ldexp(part, 1 - bias - mantissa));
}

static double dlc_decode(const char *at, int type)
{
    float value;
    int32_t integer;
    uint16_t half;
    switch (type) {
    case DLC_F32: memcpy(&value, at, 4); return value;
    case DLC_I32: memcpy(&integer, at, 4); return integer;
    case DLC_F16: memcpy(&half, at, 2); return dlc_small_float(half, 5, 10);
    case DLC_BF16: memcpy(&half, at, 2); return dlc_small_float(half, 8, 7);
    case DLC_I8: return *(const int8_t *)at;
    case DLC_U8: return *(const uint8_t *)at;
    case DLC_E5M2: return dlc_small_float(*(const uint8_t *)at, 5, 2);
    }
    /* E4M3 has no infinities: the largest exponent is that of finite numbers, except for a mantissa of all ones (NaN). */
    half = *(const uint8_t *)at;
    if ((half & 0x7f) == 0x7f)
        return NAN;
    return (half & 0x78) == 0x78 ? (half & 0x80 ? -1 : 1) * (256.0 + 32.0 * (half & 7)) : dlc_small_float(half, 4, 3);
}

static double dlc_round_mantissa(double value, int mantissa)
{
    int power;
    const double part = frexp(value, &power);
    return mantissa && isfinite(value) ? ldexp(rint(ldexp(part, mantissa + 1)), power - mantissa - 1) : value;
}

static __thread struct {
    int64_t sync_points, first;
    double a[DLC_ELEMENTS], b[DLC_ELEMENTS];
} dlc_operands;

static void dlc_gather_operand(double *matrix, const struct dlc_fragment *fragment, const char *values, int type,
                               int mantissa)
{
    for (int thread = 0; thread < fragment->width; ++thread)
        for (int i = 0; i < fragment->count; ++i)
            matrix[dlc_element(fragment, thread, i)] = dlc_round_mantissa(
                dlc_decode(values + thread * DLC_VALUE + i * dlc_dtype_sizes[type], type), mantissa);
}

/* unit: dtypes of acc, a, b; m, n, k; mantissa bits; the fragments of acc, a, b */
void dlc_simt_matrix(void *acc, const uint32_t *a, const uint32_t *b, const int16_t *unit)
{
    struct dlc_fragment of_acc, of_a, of_b;
    const int m = unit[3], n = unit[4], k = unit[5];
    const int16_t *rest = dlc_read_fragment(&of_acc, m, n, unit + 7);
    dlc_read_fragment(&of_b, k, n, dlc_read_fragment(&of_a, m, k, rest));
    const int64_t lane = dlc_state.current % of_acc.width, first = dlc_state.current - lane;
    const int size_a = of_a.count * dlc_dtype_sizes[unit[1]], size_b = of_b.count * dlc_dtype_sizes[unit[2]];
    char *own = dlc_state.values[dlc_state.exchanges[dlc_state.current] & 1] + dlc_state.current * DLC_VALUE;
    if (size_a > DLC_VALUE / 2 || size_b > DLC_VALUE / 2 || m * k > DLC_ELEMENTS || k * n > DLC_ELEMENTS)
        dlc_fail("matrices of %d x %d x %d are too large to be simulated", m, n, k);
    if (first + of_acc.width > dlc_state.count)
        dlc_fail("a product of matrices needs %d threads, and the group has fewer", of_acc.width);
    memcpy(own, a, size_a);
    memcpy(own + DLC_VALUE / 2, b, size_b);
    const char *values = dlc_exchanged_values() + first * DLC_VALUE;
    if (dlc_operands.sync_points != dlc_state.sync_points || dlc_operands.first != first) {
        dlc_gather_operand(dlc_operands.a, &of_a, values, unit[1], unit[6]);
        dlc_gather_operand(dlc_operands.b, &of_b, values + DLC_VALUE / 2, unit[2], unit[6]);
        dlc_operands.sync_points = dlc_state.sync_points;
        dlc_operands.first = first;
    }
    for (int i = 0; i < of_acc.count; ++i) {
        const int element = dlc_element(&of_acc, lane, i);
        const double *row = dlc_operands.a + element / n * k, *column = dlc_operands.b + element % n;
        double sum = unit[0] == DLC_F32 ? ((float *)acc)[i] : ((int32_t *)acc)[i];
        for (int j = 0; j < k; ++j)
            sum += row[j] * column[j * n];
        if (unit[0] == DLC_F32)
            ((float *)acc)[i] = (float)sum;
        else
            ((int32_t *)acc)[i] = (int32_t)(int64_t)sum;
    }
}

/* block: rows, columns, bytes of an element, the fragment */
void dlc_simt_blocks(uint32_t *to, const void *from, int count, const int16_t *block)
{
    struct dlc_fragment fragment;
    dlc_read_fragment(&fragment, block[0], block[1], block + 3);
    const int64_t lane = dlc_state.current % fragment.width, first = dlc_state.current - lane;
    dlc_simt_send(&from, sizeof from);
    const char *values = dlc_exchanged_values();
    for (int i = 0; i < count * fragment.count; ++i) {
        const int element = dlc_element(&fragment, lane, i % fragment.count);
        const int64_t thread = first + i / fragment.count * fragment.rows + element / fragment.columns;
        const char *row;
        if (thread >= dlc_state.count)
            dlc_fail("the address of a row comes from thread %lld, which the group does not have", (long long)thread);
        memcpy(&row, values + thread * DLC_VALUE, sizeof row);
        dlc_copy((char *)to + i * block[2], row + element % fragment.columns * block[2], block[2]);
    }
}

/* Products of tiles in shared memory. */

#define DLC_CACHED_TILES 32

static __thread struct dlc_tile {
    const void *start;
    int64_t sync_points, stride;
    const int16_t *unit;
    int outer;
    float values[DLC_TILE];
} dlc_tiles[DLC_CACHED_TILES];
static __thread int dlc_next_tile;

/* The address of an element of a tile of rows of 128 bytes, with the permutation of 16-byte chunks applied. */
static const char *dlc_swizzled_address(const void *start, int64_t stride, int outer, int step, int other, int size)
{
    uintptr_t at = (uintptr_t)start;
    if (outer)
        at += (uintptr_t)(other * size / 128 * stride + step * 128 + other * size % 128);
    else
        at += (uintptr_t)(other * 128 + step * size);
    return (const char *)(at ^ (at >> 7 & 7) << 4);
}

/* An operand as [other dim, K] in float32, cached for all threads of a phase. */
static const float *dlc_tile_of(const void *start, int64_t stride, int outer, int others, const int16_t *unit, int of,
                                int64_t start_phase)
{
    const int steps = unit[5], type = unit[of], size = dlc_dtype_sizes[type];
    for (int i = 0; i < DLC_CACHED_TILES; ++i) {
        const struct dlc_tile *tile = &dlc_tiles[i];
        if (tile->start == start && tile->sync_points == dlc_state.sync_points + 1 && tile->unit == unit &&
            tile->outer == outer && tile->stride == stride)
            return tile->values;
    }
    struct dlc_tile *tile = &dlc_tiles[dlc_next_tile++ % DLC_CACHED_TILES];
    if (others * steps > DLC_TILE)
        dlc_fail("a matrix of %d x %d is too large to be simulated", others, steps);
    for (int i = 0; i < others; ++i)
        for (int k = 0; k < steps; ++k) {
            const char *at = dlc_swizzled_address(start, stride, outer, k, i, size);
            dlc_check_unit_read(at, size, start_phase);
            tile->values[i * steps + k] = (float)dlc_round_mantissa(dlc_decode(at, type), unit[6]);
        }
    tile->start = start;
    tile->sync_points = dlc_state.sync_points + 1;
    tile->unit = unit;
    tile->outer = outer;
    tile->stride = stride;
    return tile->values;
}

static void dlc_run_product(const struct dlc_async *op)
{
    const int16_t *unit = op->unit;
    const int m = unit[3], n = unit[4], steps = unit[5];
    struct dlc_fragment fragment;
    dlc_read_fragment(&fragment, m, n, unit + 7);
    const int64_t lane = dlc_state.current % fragment.width;
    if (dlc_state.current - lane + fragment.width > dlc_state.count)
        dlc_fail("a product of matrices needs %d threads, and the group has fewer", fragment.width);
    const float *a = dlc_tile_of(op->from, op->stride, op->layouts[0] == 't', m, unit, 1, op->phase);
    const float *b = dlc_tile_of(op->other, op->other_stride, op->layouts[1] == 't', n, unit, 2, op->phase);
    for (int i = 0; i < fragment.count; ++i) {
        const int element = dlc_element(&fragment, lane, i);
        const float *row = a + element / n * steps, *column = b + element % n * steps;
        double sum = unit[0] == DLC_F32 ? ((float *)op->to)[i] : ((int32_t *)op->to)[i];
        for (int k = 0; k < steps; ++k)
            sum += (double)row[k] * column[k];
        if (unit[0] == DLC_F32)
            ((float *)op->to)[i] = (float)sum;
        else
            ((int32_t *)op->to)[i] = (int32_t)(int64_t)sum;
    }
}

void dlc_simt_products_begin(void) { dlc_queues[dlc_state.current].open = 1; }

void dlc_simt_product_async(void *acc, const void *a, int64_t a_stride, const void *b, int64_t b_stride,
                            const char *layouts, const int16_t *unit)
{
    if (!dlc_queues[dlc_state.current].open)
        dlc_fail("a product of matrices outside of a batch: DLC_PRODUCTS_BEGIN is missing");
    struct dlc_async *op = dlc_enqueue(dlc_queue_of(&dlc_queues[dlc_state.current].products));
    op->to = acc;
    op->from = a;
    op->other = b;
    op->stride = a_stride;
    op->other_stride = b_stride;
    op->unit = unit;
    op->layouts = layouts;
}

void dlc_simt_products_commit(void)
{
    dlc_queues[dlc_state.current].open = 0;
    ++dlc_queue_of(&dlc_queues[dlc_state.current].products)->committed;
}

void dlc_simt_products_wait(int in_flight)
{
    dlc_run_batches(dlc_queue_of(&dlc_queues[dlc_state.current].products), in_flight, dlc_run_product);
}
